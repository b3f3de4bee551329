//! A model cannot do what it should not: a graph that reads, writes and lists files tries it, in
//! workers of a server that root runs and of one that an ordinary user runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tensor::{Shape, Strings, Tensor};
use tensorflow::{ModelSettings, Renewal};

use super::memory::{load, options, spin};
use super::{fallback, predict, refused_at_once, spec, with_tensorflow, workers};
use crate::control::Files;
use crate::support::{Server, python, tensord};

/// The user that runs the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum As {
    Tester,
    Nobody,
}

/// Those who can run a server here.
fn users() -> Vec<As> {
    if rustix::process::geteuid().is_root() {
        return vec![As::Tester, As::Nobody];
    }
    println!("the tests do not run as root: only the server of an ordinary user is tried");
    vec![As::Tester]
}

/// A server's program and a folder that its user can write to.
fn program(user: As, folder: &Path) -> Command {
    if user == As::Tester {
        // Folders of libraries are open to workers, and cargo names the one that has our program.
        let mut command = with_tensorflow(tensord());
        command.env_remove("LD_LIBRARY_PATH");
        return command;
    }
    // An ordinary user may not look into the folder that has TensorFlow: it is mounted elsewhere,
    // for this process alone.
    let python = python();
    let prefix = Path::new(python.get_program()).parent().and_then(Path::parent).unwrap();
    let seen = folder.join("python");
    fs::create_dir(&seen).unwrap();
    let script = "mount --bind \"$0\" \"$1\" && shift && exec setpriv --reuid=65534 \
                  --regid=65534 --clear-groups --inh-caps=-all \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script]).arg(prefix).arg(&seen).arg(tensord().get_program());
    command.env("TENSORD_TENSORFLOW", &seen).env("CUDA_VISIBLE_DEVICES", "");
    command.env_remove("LD_LIBRARY_PATH");
    command
}

/// A folder that everybody can read and write.
fn open_folder() -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    folder
}

fn path(path: &str) -> Tensor {
    let strings = Strings::collect([path.as_bytes()]).unwrap();
    Tensor::from_strings(Shape::scalar(), strings).unwrap()
}

fn can(server: &Server, signature: &str, file: &str) -> bool {
    predict(server, spec("writer", signature), &[("path", path(file))]).is_ok()
}

/// A copy of the model in a folder, as `--model_base_path`.
fn copy_of(model: &str, folder: &Path) -> PathBuf {
    let (from, to) = (fallback().join(model).join("1"), folder.join(model));
    fs::create_dir_all(to.join("1/variables")).unwrap();
    for file in ["saved_model.pb", "variables/variables.index"] {
        fs::copy(from.join(file), to.join("1").join(file)).unwrap();
    }
    let data = "1/variables/variables.data-00000-of-00001";
    fs::copy(fallback().join(model).join(data), to.join(data)).unwrap();
    to
}

#[test]
fn a_model_reads_its_own_files_and_writes_none() {
    for user in users() {
        let folder = open_folder();
        let (own, other) = (copy_of("writer", folder.path()), copy_of("spin", folder.path()));
        let memory = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
        fs::write(folder.path().join("secret"), "secret").unwrap();
        let server = Server::start(program(user, folder.path()), &[&own.display().to_string()]);
        let (id, folder) = (server.id(), folder.path().display());
        for file in [
            format!("{}/1/saved_model.pb", own.display()),
            "/proc/self/status".to_owned(),
            "/dev/null".to_owned(),
        ] {
            assert!(can(&server, "read", &file), "{user:?} cannot read {file}");
        }
        let own_new = format!("{}/1/new", own.display());
        let shut = [
            format!("/proc/{id}/environ"),
            format!("/proc/{id}/maps"),
            format!("/proc/{id}/mem"),
            format!("/proc/{id}/cmdline"),
            format!("/proc/{id}/root/etc/passwd"),
            format!("{}/1/saved_model.pb", other.display()),
            format!("{folder}/secret"),
            format!("/proc/self/root{folder}/secret"),
            memory.path().display().to_string(),
            format!("{}/.profile", std::env::home_dir().unwrap().display()),
            tensord().get_program().to_string_lossy().into_owned(),
        ];
        let known = [
            "/proc/1/environ",
            "/etc/shadow",
            "/etc/passwd",
            "/etc/hostname",
            "/dev/vda",
            "/dev/mem",
            "/dev/kmsg",
            "/proc/version",
            "/proc/net/tcp",
            "/proc/self/mem",
        ];
        for file in shut.iter().map(String::as_str).chain(known) {
            assert!(!can(&server, "read", file), "{user:?} read {file}");
            assert!(!can(&server, "", file), "{user:?} wrote {file}");
        }
        for file in ["/dev/shm/new", "/tmp/tensord-new", "/var/tmp/new", "/dev/null/new", &own_new]
        {
            assert!(!can(&server, "", file), "{user:?} wrote {file}");
            assert!(!Path::new(file).exists());
        }
        for pattern in ["/etc/*", "/dev/shm/*", "/tmp/*", "/proc/1/*", &format!("{folder}/*")] {
            let inputs = [("path", path(pattern))];
            let listed = predict(&server, spec("writer", "list"), &inputs);
            let n_files = listed.map_or(0, |outputs| outputs["files"].strings().iter().len());
            assert_eq!(n_files, 0, "{user:?} listed {pattern}");
        }
    }
}

#[test]
fn without_the_sandbox_a_model_is_free() {
    for flag in ["--worker_sandbox=off", "--tensorflow_sandbox=false"] {
        let folder = open_folder();
        let model = fallback().join("writer").display().to_string();
        let server = Server::start(with_tensorflow(tensord()), &[flag, &model]);
        let written = folder.path().join("written").display().to_string();
        assert!(can(&server, "", &written) && can(&server, "read", &written));
    }
}

#[test]
fn a_worker_inherits_neither_files_nor_variables_that_it_does_not_need() {
    let folder = open_folder();
    let secret = folder.path().join("secret");
    fs::write(&secret, "secret").unwrap();
    let mut shell = with_tensorflow(Command::new("sh"));
    shell.args(["-c", "exec 9<\"$0\"; exec \"$@\""]).arg(&secret).arg(tensord().get_program());
    for name in ["PGPASSWORD", "TF_VAR_password", "TF_TOKEN_app", "NVIDIA_API_KEY", "HOME"] {
        shell.env(name, "secret");
    }
    shell.env("TF_ENABLE_ONEDNN_OPTS", "0");
    let model = fallback().join("writer").display().to_string();
    let server = Server::start(shell, &["--worker_sandbox=required", &model]);
    let worker = workers(server.id())[0];
    if !rustix::process::geteuid().is_root() {
        println!("the tests do not run as root: a worker hides its files and its environment");
        return;
    }
    let variables = fs::read_to_string(format!("/proc/{worker}/environ")).unwrap();
    assert!(variables.contains("TF_ENABLE_ONEDNN_OPTS=0"), "{variables}");
    assert!(!variables.contains("secret"), "{variables}");
    let files = fs::read_dir(format!("/proc/{worker}/fd")).unwrap().flatten();
    let files: Vec<PathBuf> = files.filter_map(|file| fs::read_link(file.path()).ok()).collect();
    assert!(files.len() > 5 && !files.contains(&secret), "{files:?}");
}

/// Has a program run on a kernel without Landlock, as far as it can see.
fn without_landlock(command: &Command) -> Command {
    // The filter of `seccomp(2)`: the three calls of Landlock (444 to 446) do not exist.
    let script = "
import ctypes, os, struct, sys
filter = b''.join(struct.pack('HBBI', *step) for step in [
    (0x20, 0, 0, 0), (0x35, 0, 2, 444), (0x25, 1, 0, 446),
    (0x06, 0, 0, 0x50026), (0x06, 0, 0, 0x7fff0000)])
memory = ctypes.create_string_buffer(filter)
program = struct.pack('HxxxxxxP', len(filter) // 8, ctypes.addressof(memory))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, program, 0, 0) == 0, ctypes.get_errno()
os.execv(sys.argv[1], sys.argv[1:])
";
    let mut wrapped = with_tensorflow(Command::new(python().get_program()));
    wrapped.args(["-c", script]).arg(command.get_program());
    wrapped
}

#[test]
fn where_the_kernel_lacks_landlock_a_required_sandbox_starts_no_worker() {
    let model = fallback().join("writer").display().to_string();
    let args = ["--worker_sandbox=required", "--max_num_load_retries=0", model.as_str()];
    let server = Server::spawn(without_landlock(&tensord()), &args);
    let line = server.logs("--worker_sandbox=required");
    assert!(line.contains("this system lacks Landlock"), "{line}");
    assert!(workers(server.id()).is_empty());
}

#[test]
fn where_the_kernel_lacks_landlock_a_model_that_requires_the_sandbox_is_refused_at_once() {
    let files = Files::new();
    let flags = [
        files.list(&["a"]),
        format!("--model_roots={}", files.path("models")),
        "--engine=tensorflow,a=native".to_owned(),
        "--worker_sandbox=required".to_owned(),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let server = Server::start(without_landlock(&tensord()), &flags);
    let answer = refused_at_once(&server, ("b", &files.path("models/b")), "", 400);
    assert!(answer.contains("this system lacks Landlock"), "{answer}");
}

#[test]
fn where_the_kernel_lacks_landlock_the_log_says_so_and_nothing_is_written_still() {
    let model = fallback().join("writer").display().to_string();
    let server = Server::spawn(without_landlock(&tensord()), &[&model]);
    server.logs("workers are not fully confined: this system lacks Landlock");
    server.logs("Exporting HTTP/REST API at");
    let folder = open_folder();
    let secret = folder.path().join("secret");
    fs::write(&secret, "secret").unwrap();
    assert!(!can(&server, "", &secret.display().to_string()));
    assert_eq!(fs::read(&secret).unwrap(), b"secret");
    assert!(!can(&server, "", &folder.path().join("new").display().to_string()));
}

#[test]
fn tensorflow_runs_by_the_rules_of_a_gpu() {
    let mut options = options(Renewal::Never);
    options.gpu_devices = vec!["/dev/null".into()];
    options.sandbox = tensorflow::Sandbox::Required;
    let workers = tensorflow::Workers::new(options);
    let servable = load(&workers, "spin", &ModelSettings::default());
    spin(&servable);
}

#[test]
fn models_of_different_tenants_never_share_a_worker() {
    let workers = tensorflow::Workers::new(options(Renewal::Never));
    let of = |tenant: &str| ModelSettings { tenant: tenant.to_owned(), ..ModelSettings::default() };
    let loads = [("spin", "a"), ("keeper", "a"), ("spin", "b"), ("keeper", ""), ("spin", "")];
    let loaded = loads.map(|(model, tenant)| load(&workers, model, &of(tenant)));
    let mut together: Vec<Vec<String>> = Vec::new();
    for worker in workers.snapshot() {
        let mut models: Vec<String> = worker.models.into_iter().map(|one| one.model).collect();
        models.sort();
        together.push(models);
    }
    assert_eq!(together, [vec!["keeper", "spin"], vec!["spin"], vec!["keeper", "spin"]]);
    drop(loaded);
}

#[test]
fn no_worker_reads_the_models_of_another_tenant() {
    let folder = open_folder();
    let config = folder.path().join("models.config");
    let models = [("writer", "one"), ("spin", "two"), ("keeper", "one")].map(|(model, tenant)| {
        let base = copy_of(model, folder.path());
        format!("config {{ name: '{model}' base_path: '{}' tenant: '{tenant}' }}", base.display())
    });
    fs::write(&config, format!("model_config_list {{ {} }}", models.join(" "))).unwrap();
    let flag = format!("--model_config_file={}", config.display());
    let server = Server::start(with_tensorflow(tensord()), &[&flag, "--engine=tensorflow"]);
    assert_eq!(workers(server.id()).len(), 2);
    let file = |model: &str| {
        folder.path().join(model).join("1/saved_model.pb").to_string_lossy().into_owned()
    };
    assert!(can(&server, "read", &file("keeper")));
    assert!(!can(&server, "read", &file("spin")));
}
