//! The folders below which clients may name paths.

use std::path::{Component, Path};

use proto::serving::ModelConfig;
use status::{Code, Status};

use super::Roots;

/// The longest name that a client may give to a model.
const NAME_BYTES_MAX: usize = 256;

/// Refuses if clients may change nothing at all.
pub fn check_any(roots: &Roots) -> Result<(), Status> {
    if roots.is_empty() {
        let text = "models are added and removed by clients only if --model_roots is given";
        return Err(denied(text.to_owned()));
    }
    Ok(())
}

/// Refuses a model that is not below one of the folders, links followed.
pub fn check(roots: &Roots, model: &ModelConfig) -> Result<(), Status> {
    check_any(roots)?;
    check_name(&model.name)?;
    check_logging(model)?;
    let path = model.base_path.strip_prefix("file://").unwrap_or(&model.base_path);
    if path.contains("://") || !path.starts_with('/') {
        let text = format!("base_path {}: expected an absolute path", model.base_path);
        return Err(Status::invalid(text));
    }
    let outside = || denied(format!("base_path {} is not below --model_roots", model.base_path));
    // Said before it is looked at, so that nothing is learnt of what is elsewhere.
    let has_dots = Path::new(path).components().any(|part| part == Component::ParentDir);
    if has_dots {
        return Err(outside());
    }
    let real = Path::new(path).canonicalize().map_err(|_| outside())?;
    roots.root_of(&real).map(drop).ok_or_else(outside)
}

/// Refuses a model whose requests would be logged: no client names a file that is written.
pub fn check_logging(model: &ModelConfig) -> Result<(), Status> {
    match model.logging_config {
        Some(_) => Err(denied("clients may not have requests logged".to_owned())),
        None => Ok(()),
    }
}

fn check_name(name: &str) -> Result<(), Status> {
    let is_fine = |c: char| !c.is_control() && c != '/' && c != ':';
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(is_fine) {
        return Err(Status::invalid(format!(
            "a model's name has 1 to {NAME_BYTES_MAX} bytes, and no slash, colon or control \
             character"
        )));
    }
    Ok(())
}

fn denied(text: String) -> Status {
    Status::new(Code::PermissionDenied, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(roots: &Roots, path: &str, expected: Option<Code>) {
        let model = crate::model_config::model("m".to_owned(), path.to_owned());
        assert_eq!(super::check(roots, &model).err().map(|status| status.code), expected, "{path}");
    }

    #[test]
    fn only_what_is_below_a_root_may_be_added() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
        for dir in ["root/a", "outside"] {
            std::fs::create_dir_all(path(dir)).unwrap();
        }
        std::os::unix::fs::symlink(path("outside"), path("root/link")).unwrap();
        let roots = Roots::new(&[folder.path().join("root")]).unwrap();
        let denied = Some(Code::PermissionDenied);
        check(&roots, &path("root/a"), None);
        check(&roots, &format!("file://{}", path("root/a")), None);
        check(&roots, &path("outside"), denied);
        check(&roots, &path("root/../outside"), denied);
        check(&roots, &path("root/link"), denied);
        check(&roots, &path("root/none"), denied);
        check(&roots, "root/a", Some(Code::InvalidArgument));
        check(&roots, "s3://bucket/a", Some(Code::InvalidArgument));
        check(&Roots::default(), &path("root/a"), denied);
        assert!(Roots::new(&[folder.path().join("none")]).is_err());
    }

    #[test]
    fn names_are_bounded() {
        assert!(check_name("a model, 2").is_ok());
        for name in ["", "a/b", "a:b", "a\nb", &"a".repeat(257)] {
            assert!(check_name(name).is_err(), "{name:?}");
        }
    }
}
