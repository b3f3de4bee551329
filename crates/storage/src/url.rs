//! Splits URLs the way TensorFlow does (`tensorflow/core/platform/path.cc`): no percent decoding.

/// The scheme of `scheme://rest` and the rest; `None` for a plain path.
pub(crate) fn scheme(url: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = url.split_once("://")?;
    let mut chars = scheme.chars();
    let starts = chars.next().is_some_and(|c| c.is_ascii_alphabetic());
    let continues = chars.all(|c| c.is_ascii_alphanumeric() || c == '.');
    (starts && continues).then_some((scheme, rest))
}

/// The path of `host/path`, with its slash.
pub(crate) fn path_after_host(rest: &str) -> &str {
    rest.find('/').map_or("", |slash| &rest[slash..])
}

/// The URL as it may be shown: without what stands before an `@` or after a `?`.
pub(crate) fn without_secrets(url: &str) -> String {
    let url = url.split('?').next().unwrap_or_default();
    match scheme(url) {
        Some((scheme, rest)) => {
            let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            let host = host.rsplit('@').next().unwrap_or_default();
            format!("{scheme}://{host}{path}")
        }
        None => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scheme_is_letters_before_a_colon_and_two_slashes() {
        assert_eq!(scheme("s3://bucket/m"), Some(("s3", "bucket/m")));
        assert_eq!(scheme("file:///m"), Some(("file", "/m")));
        assert_eq!(scheme("/a://b"), None);
        assert_eq!(scheme("/models/m"), None);
        assert_eq!(scheme("://b"), None);
    }

    #[test]
    fn the_host_of_a_file_is_skipped() {
        assert_eq!(path_after_host("localhost/m"), "/m");
        assert_eq!(path_after_host("/m"), "/m");
        assert_eq!(path_after_host("m"), "");
    }

    #[test]
    fn secrets_are_not_shown() {
        assert_eq!(without_secrets("https://u:p@h/m?sig=1"), "https://h/m");
        assert_eq!(without_secrets("s3://b/m@1"), "s3://b/m@1");
    }
}
