//! Checkpoints written by TensorFlow 2.21 (`tools/fixtures/savedmodel.py`), and damaged ones.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use half::{bf16, f16};
use metrics::Headway;
use proto::tensorflow::{BundleEntryProto, TensorShapeProto, tensor_shape_proto};
use status::Code;
use tensor::DType;

use super::*;

fn testdata(path: &str) -> Storage {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata");
    storage::open(&format!("{root}/{path}")).unwrap()
}

fn open(path: &str) -> Checkpoint {
    Checkpoint::open(&testdata(path), "variables").unwrap()
}

fn read(checkpoint: &Checkpoint, key: &str, part: Option<&str>) -> Result<Vec<u8>> {
    let part = part.map(|part| {
        let shape = checkpoint.entry(key).unwrap().shape().to_i64();
        let shape: Vec<String> = shape.iter().map(ToString::to_string).collect();
        Slice::parse_with_shape(format!("{} {part}", shape.join(" ")).trim()).unwrap().1
    });
    let n_elements = checkpoint.shape(key, part.as_ref())?.n_elements();
    let mut bytes = vec![0xaa; n_elements * checkpoint.entry(key)?.dtype().size()];
    checkpoint.read_into(key, part.as_ref(), &mut bytes)?;
    Ok(bytes)
}

fn floats(values: impl IntoIterator<Item = u16>) -> Vec<u8> {
    values.into_iter().flat_map(|value| f32::from(value).to_le_bytes()).collect()
}

#[test]
fn every_plain_dtype_is_read() {
    let checkpoint = open("models/dtypes/1/variables");
    let check = |name: &str, dtype: DType, bytes: &dyn Fn(u8) -> Vec<u8>| {
        let key = format!("{name}/.ATTRIBUTES/VARIABLE_VALUE");
        let entry = checkpoint.entry(&key).unwrap();
        assert_eq!(
            (entry.dtype(), entry.shape().to_i64().into_vec()),
            (dtype, vec![2, 3]),
            "{name}"
        );
        let expected: Vec<u8> = (1..=6).flat_map(bytes).collect();
        assert_eq!(read(&checkpoint, &key, None).unwrap(), expected, "{name}");
    };
    check("float32", DType::F32, &|i| f32::from(i).to_le_bytes().into());
    check("float64", DType::F64, &|i| f64::from(i).to_le_bytes().into());
    check("float16", DType::F16, &|i| f16::from(i).to_le_bytes().into());
    check("bfloat16", DType::BF16, &|i| bf16::from(i).to_le_bytes().into());
    check("int8", DType::I8, &|i| vec![i]);
    check("int16", DType::I16, &|i| i16::from(i).to_le_bytes().into());
    check("int32", DType::I32, &|i| i32::from(i).to_le_bytes().into());
    check("int64", DType::I64, &|i| i64::from(i).to_le_bytes().into());
    check("uint8", DType::U8, &|i| vec![i]);
    check("uint16", DType::U16, &|i| u16::from(i).to_le_bytes().into());
    check("uint32", DType::U32, &|i| u32::from(i).to_le_bytes().into());
    check("uint64", DType::U64, &|i| u64::from(i).to_le_bytes().into());
    check("bool", DType::Bool, &|_| vec![1]);
    check("complex64", DType::Complex64, &|i| [f32::from(i).to_le_bytes(), [0; 4]].concat());
    check("complex128", DType::Complex128, &|i| [f64::from(i).to_le_bytes(), [0; 8]].concat());
    check("float8_e5m2", DType::F8E5M2, &|i| vec![i]);
    check("float8_e4m3fn", DType::F8E4M3FN, &|i| vec![i]);
    assert_eq!(read(&checkpoint, "empty/.ATTRIBUTES/VARIABLE_VALUE", None).unwrap(), b"");
}

#[test]
fn strings_are_read() {
    let checkpoint = open("models/dtypes/1/variables");
    let check = |name: &str, expected: &[&[u8]]| {
        let strings = checkpoint.read_strings(&format!("{name}/.ATTRIBUTES/VARIABLE_VALUE"));
        assert_eq!(strings.unwrap().iter().collect::<Vec<_>>(), expected);
    };
    check("string", &[b"s1", b"ss2", b"sss3", b"ssss4", b"5", b"s6"]);
    check("scalar_string", &[b"alone"]);
    check("long_strings", &[b"", &[b'x'; 300]]);
    let graph = checkpoint.read_strings("_CHECKPOINTABLE_OBJECT_GRAPH").unwrap();
    let graph = proto::tensorflow::TrackableObjectGraph::decode(graph.get(0)).unwrap();
    assert!(graph.nodes[0].children.iter().any(|child| child.local_name == "float32"));
}

#[test]
fn bytes_that_are_read_are_counted() {
    let headway = Arc::new(Headway::default());
    let checkpoint = open("models/dtypes/1/variables").counted_in(Some(Arc::clone(&headway)));
    headway.begin("reading", 100);
    read(&checkpoint, "float32/.ATTRIBUTES/VARIABLE_VALUE", None).unwrap();
    assert_eq!(headway.snapshot().done_bytes, 24);
    read(&checkpoint, "int8/.ATTRIBUTES/VARIABLE_VALUE", None).unwrap();
    assert_eq!(headway.snapshot().done_bytes, 30);
}

#[test]
fn dtypes_are_not_mixed_up() {
    let checkpoint = open("models/dtypes/1/variables");
    let strings = checkpoint.read_into("string/.ATTRIBUTES/VARIABLE_VALUE", None, &mut []);
    assert_eq!(strings.unwrap_err().code(), Code::Unimplemented);
    let floats = checkpoint.read_strings("float32/.ATTRIBUTES/VARIABLE_VALUE");
    assert_eq!(
        floats.unwrap_err().to_string(),
        "variables.index: tensor \"float32/.ATTRIBUTES/VARIABLE_VALUE\": expected string, got float"
    );
    let short = checkpoint.read_into("float32/.ATTRIBUTES/VARIABLE_VALUE", None, &mut [0; 23]);
    assert_eq!(short.unwrap_err().code(), Code::InvalidArgument);
    let missing = checkpoint.entry("none").unwrap_err();
    assert_eq!(missing.code(), Code::NotFound);
    assert_eq!(missing.to_string(), "variables.index: tensor \"none\": not in the checkpoint");
}

#[test]
fn slices_are_put_together_along_the_first_axis() {
    let checkpoint = open("models/tf1_partitioned/1/variables");
    assert!(checkpoint.entry("rows").unwrap().is_sliced());
    assert_eq!(read(&checkpoint, "rows", None).unwrap(), floats(0..28));
    assert_eq!(read(&checkpoint, "rows", Some("3,2:-")).unwrap(), floats(12..20));
}

#[test]
fn a_part_is_read_however_the_tensor_was_cut() {
    let checkpoint = open("models/tf1_partitioned/1/variables");
    let rows = |part| read(&checkpoint, "rows", Some(part)).unwrap();
    assert_eq!(rows("2,3:-"), floats(8..20));
    assert_eq!(rows("6,1:0,4"), floats(24..28));
    assert_eq!(rows("2,3:1,2"), floats([9, 10, 13, 14, 17, 18]));
    let columns = |part| read(&checkpoint, "columns", part).unwrap();
    let ints = |values: Vec<i32>| values.into_iter().flat_map(i32::to_le_bytes).collect::<Vec<_>>();
    assert_eq!(columns(None), ints((0..200).collect()));
    assert_eq!(columns(Some("-:50,50")), ints((50..100).chain(150..200).collect()));
    assert_eq!(columns(Some("1,1:49,2")), ints(vec![149, 150]));
}

#[test]
fn a_part_is_read_of_a_tensor_that_was_not_cut() {
    let checkpoint = open("models/tf1_variables/1/variables");
    assert_eq!(read(&checkpoint, "dense/kernel", Some("-:1,1")).unwrap(), floats([1, 4]));
    assert_eq!(read(&checkpoint, "dense/kernel", Some("1,1:-")).unwrap(), floats(3..6));
    assert_eq!(read(&checkpoint, "dense/kernel", Some("0,0:-")).unwrap(), b"");
    assert_eq!(read(&checkpoint, "step", Some("")).unwrap(), 7_u64.to_le_bytes());
}

#[test]
fn slices_of_any_size_are_found_by_their_keys() {
    let checkpoint = open("checkpoints/slices");
    let wide: Vec<u8> = (0..16_400_u16).flat_map(u16::to_le_bytes).collect();
    assert_eq!(read(&checkpoint, "wide", None).unwrap(), wide);
    assert_eq!(read(&checkpoint, "wide", Some("8190,4:-")).unwrap(), wide[8190 * 4..8194 * 4]);
    let starts = [1_u64 << 20, (1 << 27) - 1, 1 << 27, 1 << 34, 1 << 41, 1 << 48, (1 << 55) - 1];
    for start in starts.into_iter().chain([1 << 55, 1 << 61]) {
        let (_, slice) = Slice::parse_with_shape(&format!("{} {start},1", 1_u64 << 62)).unwrap();
        assert!(checkpoint.lookup(&slice.key(b"far")).is_ok(), "{start}");
    }
    // 2⁶² elements are more than memory can hold, though each slice is small.
    assert_eq!(checkpoint.entry("far").unwrap_err().code(), Code::InvalidArgument);
    let (_, slice) = Slice::parse_with_shape("4 2,2").unwrap();
    assert!(checkpoint.lookup(&slice.key(b"zero\0\xff")).is_ok());
}

#[test]
fn several_data_files_are_read() {
    let checkpoint = open("models/tf1_sharded/1/variables");
    assert_eq!(checkpoint.n_shards, 2);
    assert_eq!(read(&checkpoint, "a", None).unwrap(), floats([1, 2]));
    assert_eq!(read(&checkpoint, "b", None).unwrap(), floats([10, 20, 30]));
}

#[test]
fn a_compressed_index_of_many_blocks_is_read() {
    let checkpoint = open("models/tf2_many/1/variables");
    assert_eq!(checkpoint.entries().count(), 21);
    for i in 0..20_i32 {
        let key = format!("layers/{i}/kernel/.ATTRIBUTES/VARIABLE_VALUE");
        let expected: Vec<u8> = (i..i + 3).flat_map(i32::to_le_bytes).collect();
        assert_eq!(read(&checkpoint, &key, None).unwrap(), expected);
    }
}

#[test]
fn the_entries_are_listed_without_slices() {
    let checkpoint = open("models/tf1_partitioned/1/variables");
    let listed: Vec<_> = checkpoint.entries().map(|(key, entry)| (key, entry.n_bytes())).collect();
    assert_eq!(listed, [("columns", 800), ("rows", 112)]);
}

/// A copy of a fixture that may be damaged.
fn copy(of: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let from = testdata(of);
    for entry in from.list("").unwrap() {
        fs::copy(from.path().join(&entry.name), dir.path().join(&entry.name)).unwrap();
    }
    dir
}

fn reopen(dir: &Path) -> Result<Checkpoint> {
    Checkpoint::open(&storage::open(dir.to_str().unwrap()).unwrap(), "variables")
}

fn with_index(dir: &Path, index: &[u8]) -> Result<Checkpoint> {
    Checkpoint::of_index(&storage::open(dir.to_str().unwrap()).unwrap(), "variables", index)
}

fn read_entry(checkpoint: &Checkpoint, key: &str, dtype: DType) -> Result<Vec<u8>> {
    if dtype == DType::String {
        return Ok(checkpoint.read_strings(key)?.iter().collect::<Vec<_>>().concat());
    }
    read(checkpoint, key, None)
}

/// Everything that can be read of a checkpoint.
fn contents(checkpoint: &Checkpoint) -> Vec<(String, Result<Vec<u8>>)> {
    let read_any = |key: &str, entry: &Entry| read_entry(checkpoint, key, entry.dtype());
    checkpoint.entries().map(|(key, entry)| (key.to_owned(), read_any(key, entry))).collect()
}

#[test]
fn an_index_cut_off_anywhere_is_refused() {
    for fixture in ["models/tf1_sharded/1/variables", "models/tf2_many/1/variables"] {
        let dir = copy(fixture);
        let index = dir.path().join("variables.index");
        let whole = fs::read(&index).unwrap();
        for len in 0..whole.len() {
            let error = with_index(dir.path(), &whole[..len]).unwrap_err();
            assert_eq!(error.code(), Code::DataLoss, "{len}: {error}");
            assert!(error.to_string().starts_with("variables.index: "), "{error}");
        }
    }
}

#[test]
fn a_data_file_cut_off_anywhere_fails_the_tensors_behind() {
    let dir = copy("models/tf1_partitioned/1/variables");
    let data = dir.path().join("variables.data-00000-of-00001");
    let file = fs::File::options().write(true).open(&data).unwrap();
    for len in (0..file.metadata().unwrap().len()).rev() {
        file.set_len(len).unwrap();
        let failed =
            contents(&reopen(dir.path()).unwrap()).into_iter().filter_map(|(_, r)| r.err());
        let failed: Vec<Error> = failed.collect();
        assert!(!failed.is_empty(), "{len}");
        for error in failed {
            assert_eq!(error.code(), Code::DataLoss, "{error}");
            assert!(error.to_string().contains("variables.data-00000-of-00001: truncated"));
        }
    }
}

/// A generator of numbers that are the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % end
    }
}

#[test]
fn flipped_bits_of_an_index_are_noticed_or_mean_nothing() {
    for fixture in ["models/tf1_partitioned/1/variables", "models/tf2_many/1/variables"] {
        let dir = copy(fixture);
        let index = dir.path().join("variables.index");
        let whole = fs::read(&index).unwrap();
        let expected = reopen(dir.path()).unwrap().entries;
        for bit in 0..whole.len() * 8 {
            let mut damaged = whole.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            if let Ok(checkpoint) = with_index(dir.path(), &damaged) {
                assert_eq!(checkpoint.entries, expected, "bit {bit}");
            }
        }
    }
}

#[test]
fn flipped_bits_of_data_are_noticed() {
    for fixture in ["models/tf1_partitioned/1/variables", "models/dtypes/1/variables"] {
        let dir = copy(fixture);
        let data = dir.path().join("variables.data-00000-of-00001");
        let whole = fs::read(&data).unwrap();
        let mut random = Random(1);
        for _ in 0..200 {
            let bit = random.below(whole.len() * 8);
            let mut damaged = whole.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            fs::write(&data, &damaged).unwrap();
            let results = contents(&reopen(dir.path()).unwrap());
            let failed: Vec<_> =
                results.into_iter().filter_map(|(_, result)| result.err()).collect();
            assert_eq!(failed.len(), 1, "bit {bit}");
            assert_eq!(failed[0].code(), Code::DataLoss, "{}", failed[0]);
        }
    }
}

#[test]
fn a_missing_data_file_is_named_with_the_tensor() {
    let dir = copy("models/tf1_sharded/1/variables");
    fs::remove_file(dir.path().join("variables.data-00001-of-00002")).unwrap();
    let checkpoint = reopen(dir.path()).unwrap();
    assert!(read(&checkpoint, "a", None).is_ok());
    let error = read(&checkpoint, "b", None).unwrap_err();
    assert_eq!(error.code(), Code::NotFound);
    assert_eq!(
        error.to_string(),
        "tensor \"b\": variables.data-00001-of-00002: no such file or directory"
    );
}

#[test]
fn the_tail_of_a_huge_sparse_file_costs_nothing() {
    let dir = copy("models/tf1_sharded/1/variables");
    let data = dir.path().join("variables.data-00000-of-00002");
    fs::File::options().write(true).open(&data).unwrap().set_len(1 << 40).unwrap();
    assert_eq!(read(&reopen(dir.path()).unwrap(), "a", None).unwrap(), floats([1, 2]));
}

/// An index of one block with the given entries, as TensorFlow writes it.
fn index_of(entries: &[(&[u8], Vec<u8>)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (key, value) in entries {
        block.extend([vec![0], varint(key.len()), varint(value.len())].concat());
        block.extend(*key);
        block.extend(value);
    }
    seal(block, 0)
}

fn varint(mut value: usize) -> Vec<u8> {
    let mut out = Vec::new();
    while value > 127 {
        out.push(u8::try_from(value & 127 | 128).unwrap());
        value >>= 7;
    }
    out.push(u8::try_from(value).unwrap());
    out
}

/// Makes a table of the entries of one block.
fn seal(mut block: Vec<u8>, kind: u8) -> Vec<u8> {
    let mut table = Vec::new();
    let mut append = |block: &[u8], kind: u8| {
        let handle = [varint(table.len()), varint(block.len())].concat();
        let stored = [block, &[kind]].concat();
        table.extend(&stored);
        table.extend(crc::Crc::of(&stored).masked().to_le_bytes());
        handle
    };
    if kind == 0 {
        block.extend([0, 0, 0, 0, 1, 0, 0, 0]);
    }
    let handle = append(&block, kind);
    let index =
        [&[0, 0, u8::try_from(handle.len()).unwrap()][..], &handle, &[0, 0, 0, 0, 1, 0, 0, 0]];
    let index = append(&index.concat(), 0);
    let mut footer = [vec![0, 0], index].concat();
    footer.resize(40, 0);
    table.extend(footer);
    table.extend(0xdb47_7524_8b80_fb57_u64.to_le_bytes());
    table
}

fn header() -> Vec<u8> {
    BundleHeaderProto { num_shards: 1, ..Default::default() }.encode_to_vec()
}

/// Opens a checkpoint of one entry `t` and eight bytes of data.
fn open_entry(entry: &BundleEntryProto) -> Result<Vec<u8>> {
    let dir = tempfile::tempdir().unwrap();
    let index = index_of(&[(b"", header()), (b"t", entry.encode_to_vec())]);
    fs::write(dir.path().join("variables.index"), index).unwrap();
    fs::write(dir.path().join("variables.data-00000-of-00001"), [7; 8]).unwrap();
    let checkpoint = reopen(dir.path())?;
    read_entry(&checkpoint, "t", checkpoint.entry("t")?.dtype())
}

fn honest() -> BundleEntryProto {
    BundleEntryProto {
        dtype: DType::F32.number(),
        shape: Some(shape(&[2])),
        size: 8,
        crc32c: crc::Crc::of(&[7; 8]).masked(),
        ..Default::default()
    }
}

fn shape(dims: &[i64]) -> TensorShapeProto {
    let dim = dims.iter().map(|size| tensor_shape_proto::Dim { size: *size, ..Default::default() });
    TensorShapeProto { dim: dim.collect(), unknown_rank: false }
}

#[test]
fn entries_that_cannot_be_are_refused_before_anything_is_allocated() {
    #[track_caller]
    fn check(change: impl Fn(&mut BundleEntryProto), code: Code, expected: &str) {
        let mut entry = honest();
        change(&mut entry);
        let error = open_entry(&entry).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert_eq!(error.code(), code, "{error}");
    }
    assert_eq!(open_entry(&honest()).unwrap(), [7; 8]);
    use Code::{DataLoss, InvalidArgument, Unimplemented};
    check(|e| e.shape = Some(shape(&[-1])), InvalidArgument, "\"t\": shape [-1] has a negative");
    check(|e| e.shape = Some(shape(&[1 << 40, 1 << 40])), InvalidArgument, "too large");
    check(|e| e.shape = Some(shape(&[i64::MAX])), InvalidArgument, "too large");
    check(|e| e.shape = Some(shape(&[1; 255])), InvalidArgument, "255 dimensions");
    check(|e| e.shape = Some(shape(&[1 << 40])), DataLoss, "take 4398046511104 bytes, got 8");
    check(|e| e.size = 12, DataLoss, "take 8 bytes, got 12");
    check(|e| e.offset = 1, DataLoss, "truncated: 8 bytes at offset 1");
    check(|e| e.offset = i64::MAX, DataLoss, "truncated");
    check(|e| e.offset = -1, DataLoss, "offset is -1");
    check(|e| e.size = i64::MIN, DataLoss, "offset is -9223372036854775808");
    check(|e| e.shard_id = 1, DataLoss, "shard 1 of 1");
    check(|e| e.shard_id = -1, DataLoss, "shard -1 of 1");
    check(|e| e.dtype = 0, Unimplemented, "unknown dtype 0");
    check(|e| e.dtype = 101, Unimplemented, "unknown dtype 101");
    check(|e| e.dtype = DType::Variant.number(), Unimplemented, "no fixed size");
    check(|e| e.crc32c ^= 1, DataLoss, "checksum mismatch: expected");
    let strings = |e: &mut BundleEntryProto| e.dtype = DType::String.number();
    check(strings, DataLoss, "strings are damaged: the checksum of the lengths");
    check(
        |e| {
            strings(e);
            e.shape = Some(shape(&[1 << 40]));
        },
        DataLoss,
        "take 1099511627776 bytes, got 8",
    );
    check(
        |e| e.slices = vec![proto::tensorflow::TensorSliceProto::default()],
        DataLoss,
        "slice  is not within the tensor",
    );
    check(|e| e.slices = vec![Default::default(); 5000], DataLoss, "5000 slices are too many");
}

#[test]
fn a_shape_is_given_only_if_its_bytes_are_there() {
    let dir = tempfile::tempdir().unwrap();
    let huge = |slices| BundleEntryProto {
        shape: Some(shape(&[1 << 40])),
        size: 1 << 42,
        slices,
        ..honest()
    };
    let slices = vec![proto::tensorflow::TensorSliceProto { extent: vec![Default::default()] }];
    let slice = Slice::from_proto(&slices[0]).key(b"sliced");
    let entries = [
        (&b""[..], header()),
        (&slice[..], huge(vec![]).encode_to_vec()),
        (b"sliced", huge(slices).encode_to_vec()),
        (b"t", huge(vec![]).encode_to_vec()),
    ];
    fs::write(dir.path().join("variables.index"), index_of(&entries)).unwrap();
    fs::write(dir.path().join("variables.data-00000-of-00001"), [7; 8]).unwrap();
    let checkpoint = reopen(dir.path()).unwrap();
    for key in ["t", "sliced"] {
        let error = checkpoint.shape(key, None).unwrap_err();
        let expected = "truncated: 4398046511104 bytes at offset 0 wanted, but it has 8 bytes";
        assert!(error.to_string().ends_with(expected), "{error}");
        assert_eq!(error.code(), Code::DataLoss);
    }
}

#[test]
fn headers_that_cannot_be_are_refused() {
    #[track_caller]
    fn check(header: &BundleHeaderProto, code: Code, expected: &str) {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("variables.index"), index_of(&[(b"", header.encode_to_vec())]))
            .unwrap();
        let error = reopen(dir.path()).unwrap_err();
        assert_eq!((error.code(), error.to_string()), (code, expected.to_owned()));
    }
    let one = BundleHeaderProto { num_shards: 1, ..Default::default() };
    let big = BundleHeaderProto { endianness: Endianness::Big.into(), ..one.clone() };
    check(&big, Code::Unimplemented, "variables.index: written on a big-endian machine");
    let version = proto::tensorflow::VersionDef { min_consumer: 2, ..Default::default() };
    let newer = BundleHeaderProto { version: Some(version), ..one };
    check(&newer, Code::Unimplemented, "variables.index: needs version 2, we know 1");
    let none = BundleHeaderProto::default();
    check(&none, Code::DataLoss, "variables.index: 0 shards cannot be");
}

#[track_caller]
fn check_table(table: &[u8], expected: &str) {
    let error = table::read(table, |_, _| {}).unwrap_err();
    assert!(error.contains(expected), "{error}");
}

#[test]
fn tables_that_would_expand_without_end_are_refused() {
    // One long key, then many that share it: a few bytes each in the file, a kilobyte in memory.
    let mut block = vec![0, 0x80, 0x08, 0];
    block.extend([b'k'; 1024]);
    for i in 0..200 {
        block.extend([0x80, 0x08, 1, 0, i]);
    }
    check_table(&seal(block, 0), "keys expand to more than was written");
    check_table(&seal(vec![0xff, 0xff, 0xff, 0x7f, 0, 0], 1), "claims to expand");
    check_table(&seal(vec![8, 0xff, 0xff], 1), "is damaged");
    check_table(&seal(vec![0, 0, 0, 0], 2), "unknown compression 2");
}

#[test]
fn tables_out_of_order_are_refused() {
    check_table(&index_of(&[(b"b", vec![]), (b"a", vec![])]), "keys do not ascend");
    check_table(&index_of(&[(b"a", vec![]), (b"a", vec![])]), "keys do not ascend");
    check_table(&seal(vec![1, 0, 0], 0), "an entry of a block is damaged");
    check_table(&seal(vec![0, 9, 0], 0), "an entry of a block is damaged");
}

#[test]
fn damage_with_matching_checksums_does_no_harm() {
    let honest = honest().encode_to_vec();
    let header = header();
    let mut block = vec![0, 0, u8::try_from(header.len()).unwrap()];
    block.extend(&header);
    block.extend([0, 1, u8::try_from(honest.len()).unwrap(), b't']);
    block.extend(&honest);
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("variables.data-00000-of-00001"), [7; 8]).unwrap();
    let mut random = Random(2);
    let mut n_opened = 0;
    for _ in 0..3000 {
        let mut damaged = block.clone();
        for _ in 0..=random.below(3) {
            let at = random.below(damaged.len());
            damaged[at] = u8::try_from(random.below(256)).unwrap();
        }
        if let Ok(checkpoint) = with_index(dir.path(), &seal(damaged, 0)) {
            n_opened += 1;
            contents(&checkpoint);
        }
    }
    assert!(n_opened > 100, "{n_opened}");
}
