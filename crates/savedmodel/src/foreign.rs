//! `Foreign`: files of other formats, and the lines that make SavedModels of them.

use storage::{Kind, Storage};

/// The bytes of a file's beginning that are looked at.
const HEAD_BYTES: usize = 512;

/// The format of a model that is no SavedModel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Foreign {
    /// A Keras 3 archive, `.keras`.
    Keras,
    /// A whole Keras model or its weights in HDF5, `.h5`.
    Hdf5,
    /// ONNX.
    Onnx,
    /// TensorFlow Lite.
    TfLite,
    /// A compressed archive of a SavedModel, as TensorFlow Hub hands them out.
    TarGz,
    /// The same without compression.
    Tar,
    /// A zip archive of a SavedModel.
    Zip,
    /// A checkpoint: the values of variables, without a graph.
    Checkpoint,
    /// A file of PyTorch.
    PyTorch,
    /// Weights alone, of whatever model.
    SafeTensors,
    /// A graph with its weights as constants, as TF1 froze them.
    FrozenGraph,
    /// The same as text.
    FrozenText,
}

/// Recognises a file by its first bytes, and by its name where those say nothing.
pub fn recognise(name: &str, head: &[u8]) -> Option<Foreign> {
    of_content(head).or_else(|| of_name(name, head))
}

/// The number of files of a folder that are looked at.
const FILES_MAX: usize = 64;

/// Says of a folder that is no SavedModel what it has instead, and how to get one; `None` if
/// nothing there is recognised.
pub fn advice_on(dir: &Storage) -> Option<String> {
    let entries = dir.list("").ok()?;
    let files = entries.into_iter().filter(|entry| entry.kind == Kind::File).take(FILES_MAX);
    files.into_iter().find_map(|entry| advice_on_file(dir, &entry.name))
}

/// The same of one file in a folder.
pub fn advice_on_file(dir: &Storage, name: &str) -> Option<String> {
    let file = dir.open_file(name).ok()?;
    let len = file.len().min(HEAD_BYTES as u64);
    let mut head = vec![0; usize::try_from(len).ok()?];
    file.read_exact_at(&mut head, 0).ok()?;
    let found = recognise(name, &head)?;
    Some(found.advice(&dir.path().join(name).display().to_string()))
}

impl Foreign {
    /// The name of the format, for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Keras => "a Keras 3 archive",
            Self::Hdf5 => "a Keras model in HDF5",
            Self::Onnx => "an ONNX model",
            Self::TfLite => "a TensorFlow Lite model",
            Self::TarGz => "a compressed archive, as TensorFlow Hub hands out SavedModels",
            Self::Tar => "a tar archive",
            Self::Zip => "a zip archive",
            Self::Checkpoint => "a checkpoint: values of variables, without the graph",
            Self::PyTorch => "a PyTorch model",
            Self::SafeTensors => "weights alone, without a graph",
            Self::FrozenGraph | Self::FrozenText => "a frozen graph of TensorFlow 1",
        }
    }

    /// The lines that make a SavedModel of the file, to paste: Python's begin with a comment that
    /// says so.
    pub fn export_lines(self, file: &str) -> Vec<String> {
        let python = quoted_python(file);
        let shell = quoted_shell(file);
        let owned = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect();
        match self {
            Self::Keras => vec![format!(
                "python3 -c \"import keras; keras.models.load_model({python}).export('saved/1')\""
            )],
            Self::Hdf5 => vec![
                format!(
                    "python3 -c \"import keras; \
                     keras.models.load_model({python}).export('saved/1')\""
                ),
                "# a file of weights alone: model.load_weights(FILE) in the program that makes \
                 the model, then model.export('saved/1')"
                    .to_owned(),
            ],
            Self::Onnx => vec![
                "pip install onnx2tf".to_owned(),
                format!("onnx2tf -i {shell} -o saved/1 -osd"),
            ],
            Self::TfLite => owned(&[
                "# the original model is needed: TensorFlow Lite's form cannot be turned back",
                "# where it was made: model.export('saved/1'), beside \
                 tf.lite.TFLiteConverter.from_keras_model(model)",
            ]),
            Self::TarGz => vec![format!("mkdir -p saved/1 && tar -xzf {shell} -C saved/1")],
            Self::Tar => vec![format!("mkdir -p saved/1 && tar -xf {shell} -C saved/1")],
            Self::Zip => vec![format!("mkdir -p saved/1 && unzip {shell} -d saved/1")],
            Self::Checkpoint => owned(&[
                "# in the program that makes the model (Python):",
                "tf.train.Checkpoint(model).restore(tf.train.latest_checkpoint('DIR'))",
                "tf.saved_model.save(model, 'saved/1')  # with Keras: model.export('saved/1')",
            ]),
            Self::PyTorch => vec![
                "# Python; model is the module with its weights loaded, x an example of its input"
                    .to_owned(),
                "torch.onnx.export(model, (x,), 'model.onnx')".to_owned(),
                "# then, in a shell: pip install onnx2tf".to_owned(),
                "onnx2tf -i model.onnx -o saved/1 -osd".to_owned(),
            ],
            Self::SafeTensors => vec![
                "# with transformers (Python), in the folder of the model:".to_owned(),
                "TFAutoModel.from_pretrained('DIR', from_pt=True).save_pretrained('saved', \
                 saved_model=True)"
                    .to_owned(),
            ],
            Self::FrozenGraph | Self::FrozenText => frozen(self, &python),
        }
    }

    /// The name of the format, and how to get a SavedModel.
    pub fn advice(self, file: &str) -> String {
        let lines = self.export_lines(file).join("\n  ");
        format!("{file} is {}; to get a SavedModel:\n  {lines}\nthen: tensord saved", self.name())
    }
}

/// The lines for a frozen graph; which tensors go in and come out stands nowhere in the file.
fn frozen(kind: Foreign, python: &str) -> Vec<String> {
    let (import, parse) = if kind == Foreign::FrozenText {
        let parse = format!("text_format.Parse(open({python}).read(), v1.GraphDef())");
        ("; from google.protobuf import text_format", parse)
    } else {
        ("", format!("v1.GraphDef.FromString(open({python}, 'rb').read())"))
    };
    vec![
        "# Python; replace input and output by the names of the graph's tensors".to_owned(),
        format!("import tensorflow as tf; v1 = tf.compat.v1{import}"),
        format!("graph = {parse}"),
        "with tf.Graph().as_default(), v1.Session() as session:".to_owned(),
        "    x, y = tf.import_graph_def(graph, \
         return_elements=['input:0', 'output:0'], name='')"
            .to_owned(),
        "    v1.saved_model.simple_save(session, 'saved/1', {'x': x}, {'y': y})".to_owned(),
    ]
}

/// The format that the first bytes tell.
fn of_content(head: &[u8]) -> Option<Foreign> {
    if head.starts_with(b"\x89HDF\r\n\x1a\n") {
        return Some(Foreign::Hdf5);
    }
    if head.get(4..8) == Some(b"TFL3") {
        return Some(Foreign::TfLite);
    }
    if head.starts_with(&[0x1f, 0x8b]) {
        return Some(Foreign::TarGz);
    }
    if head.get(257..262) == Some(b"ustar") {
        return Some(Foreign::Tar);
    }
    if head.starts_with(b"PK\x03\x04") {
        return Some(of_zip(head));
    }
    // A pickle, of protocol 2 and the magic number of torch.save before it wrote zip archives.
    if head.starts_with(b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.") {
        return Some(Foreign::PyTorch);
    }
    if head.get(8..10) == Some(b"{\"") && head.get(4..8) == Some(&[0; 4]) {
        return Some(Foreign::SafeTensors);
    }
    if is_graph(head) {
        return Some(Foreign::FrozenGraph);
    }
    is_onnx(head).then_some(Foreign::Onnx)
}

/// The format of a zip archive, by the name of its first member.
fn of_zip(head: &[u8]) -> Foreign {
    let len = head.get(26..28).map_or(0, |len| usize::from(u16::from_le_bytes([len[0], len[1]])));
    let name = head.get(30..30 + len).unwrap_or_default();
    let name = String::from_utf8_lossy(name);
    let last = name.rsplit('/').next().unwrap_or_default();
    if ["metadata.json", "config.json", "model.weights.h5"].contains(&&*name) {
        return Foreign::Keras;
    }
    let is_torch = ["data.pkl", "version", ".format_version", "byteorder", "constants.pkl"];
    if name.contains('/') && is_torch.contains(&last) {
        return Foreign::PyTorch;
    }
    Foreign::Zip
}

/// Returns whether a protobuf message begins as a `GraphDef` does: a node, with its name and op.
fn is_graph(head: &[u8]) -> bool {
    let Some(node) = head.strip_prefix(&[0x0a]) else { return false };
    let Some((_, node)) = varint(node) else { return false };
    let Some((name, rest)) = text_field(node, 0x0a) else { return false };
    let Some((op, _)) = text_field(rest, 0x12) else { return false };
    let is_op = op.first().is_some_and(u8::is_ascii_uppercase)
        && op.iter().all(|c| c.is_ascii_alphanumeric() || *c == b'_');
    is_op && name.iter().all(u8::is_ascii_graphic)
}

/// Returns whether a protobuf message begins as a `ModelProto` does: the version of its form, then
/// the name of the program that wrote it.
fn is_onnx(head: &[u8]) -> bool {
    let Some((version, rest)) = head.strip_prefix(&[0x08]).and_then(varint) else { return false };
    let Some((producer, _)) = text_field(rest, 0x12) else { return false };
    // A SavedModel's version is 1, and what follows is a message.
    (2..64).contains(&version)
        && !producer.is_empty()
        && producer.iter().all(|c| c.is_ascii_graphic() || *c == b' ')
}

/// A field of text with this key at the beginning of a message, and what follows it.
fn text_field(bytes: &[u8], key: u8) -> Option<(&[u8], &[u8])> {
    let (len, rest) = varint(bytes.strip_prefix(&[key])?)?;
    rest.split_at_checked(usize::try_from(len).ok()?)
}

fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0u64;
    for (at, byte) in bytes.iter().take(9).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Some((value, &bytes[at + 1..]));
        }
    }
    None
}

/// The format that a name tells, where the bytes say nothing.
fn of_name(name: &str, head: &[u8]) -> Option<Foreign> {
    let file = name.rsplit('/').next().unwrap_or_default();
    let lower = file.to_lowercase();
    let ends = |endings: &[&str]| endings.iter().any(|ending| lower.ends_with(ending));
    let text = std::str::from_utf8(head).unwrap_or_default().trim_start();
    if ends(&[".pbtxt"]) && text.starts_with("node {") {
        return Some(Foreign::FrozenText);
    }
    if lower == "checkpoint" || ends(&[".index", ".ckpt"]) || lower.contains(".data-00000-of-") {
        return Some(Foreign::Checkpoint);
    }
    if ends(&[".onnx"]) {
        return Some(Foreign::Onnx);
    }
    if ends(&[".pt", ".pth"]) {
        return Some(Foreign::PyTorch);
    }
    None
}

fn quoted_python(file: &str) -> String {
    format!("'{}'", file.replace('\\', "\\\\").replace('\'', "\\'"))
}

fn quoted_shell(file: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    match file.chars().all(is_plain) {
        true => file.to_owned(),
        false => format!("'{}'", file.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The beginning of a zip archive whose first member has this name.
    fn zip(member: &str) -> Vec<u8> {
        let mut head = b"PK\x03\x04".to_vec();
        head.resize(26, 0);
        head.extend(u16::try_from(member.len()).unwrap().to_le_bytes());
        head.extend([0, 0]);
        head.extend(member.bytes());
        head
    }

    #[test]
    fn files_of_other_formats_are_recognised_and_answered_with_the_lines_that_export_them() {
        let tar = [&[0; 257][..], b"ustar"].concat();
        let graph = b"\x0a\x10\x0a\x01x\x12\x0bPlaceholder\x0a";
        let torch = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.";
        let cases: &[(&str, &[u8], Foreign, &str)] = &[
            (
                "m.keras",
                &zip("metadata.json"),
                Foreign::Keras,
                "keras.models.load_model('m.keras')",
            ),
            ("m", &zip("config.json"), Foreign::Keras, ".export('saved/1')"),
            ("m.h5", b"\x89HDF\r\n\x1a\n\0", Foreign::Hdf5, "keras.models.load_model('m.h5')"),
            ("m", b"\x08\x08\x12\x07pytorch\x1a", Foreign::Onnx, "onnx2tf -i m -o saved/1 -osd"),
            ("m.onnx", b"\x08\x09\x3a\x05", Foreign::Onnx, "onnx2tf -i m.onnx"),
            ("m.bin", b"\x1c\0\0\0TFL3", Foreign::TfLite, "the original model is needed"),
            ("m.tar.gz", b"\x1f\x8b\x08", Foreign::TarGz, "tar -xzf m.tar.gz -C saved/1"),
            ("m.tar", &tar, Foreign::Tar, "tar -xf m.tar -C saved/1"),
            ("m.zip", &zip("1/saved_model.pb"), Foreign::Zip, "unzip m.zip -d saved/1"),
            ("checkpoint", b"model_check", Foreign::Checkpoint, "tf.saved_model.save(model"),
            ("ckpt-1.index", b"\0", Foreign::Checkpoint, "latest_checkpoint"),
            ("ckpt.data-00000-of-00001", b"\0", Foreign::Checkpoint, "latest_checkpoint"),
            ("m.pt", &zip("archive/data.pkl"), Foreign::PyTorch, "torch.onnx.export(model"),
            ("m.bin", torch, Foreign::PyTorch, "torch.onnx.export(model"),
            ("m.pth", b"?", Foreign::PyTorch, "torch.onnx.export(model"),
            ("m", b"\x09\0\0\0\0\0\0\0{\"a\": 1}", Foreign::SafeTensors, "from_pretrained"),
            ("frozen.pb", graph, Foreign::FrozenGraph, "FromString(open('frozen.pb', 'rb')"),
            ("g.pbtxt", b"node {\n", Foreign::FrozenText, "text_format.Parse(open('g.pbtxt')"),
        ];
        for (name, head, expected, line) in cases {
            assert_eq!(recognise(name, head), Some(*expected), "{name}");
            let advice = expected.advice(name);
            assert!(advice.contains(line) && advice.contains(expected.name()), "{advice}");
        }
    }

    #[test]
    fn saved_models_and_what_belongs_to_them_are_not_foreign() {
        let cases: &[(&str, &[u8])] = &[
            ("saved_model.pb", b"\x08\x01\x12\xb1\x05\x0a\x55"),
            ("saved_model.pbtxt", b"saved_model_schema_version: 1\n"),
            ("fingerprint.pb", b"\x08\xc1\x9e\xdf\xd1"),
            ("notes.txt", b"node {"),
            ("empty", b""),
            ("cut.pb", b"\x0a"),
            ("long.pb", b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"),
        ];
        for (name, head) in cases {
            assert_eq!(recognise(name, head), None, "{name}");
        }
    }

    #[test]
    fn names_stand_in_the_lines_as_shells_and_python_take_them() {
        let advice = Foreign::TarGz.advice("it's here.tgz");
        assert!(advice.contains(r"tar -xzf 'it'\''s here.tgz'"), "{advice}");
        let advice = Foreign::Keras.advice("it's.keras");
        assert!(advice.contains(r"load_model('it\'s.keras')"), "{advice}");
    }
}
