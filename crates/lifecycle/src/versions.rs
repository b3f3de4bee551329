//! Recognition of version folders, and choice of the aspired versions.
//!
//! Follows `tensorflow_serving/sources/storage_path/file_system_storage_path_source.cc`, but for
//! plain files with a number for a name, and negative numbers: those are left out here, and there
//! fail when they are loaded.

use std::collections::BTreeMap;

/// The choice of the versions that are to be served among those found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VersionPolicy {
    /// The highest so many; 0 means 1.
    Latest(u32),
    /// All that there are.
    All,
    /// These, as far as they are there.
    Specific(Vec<i64>),
}

impl VersionPolicy {
    /// The aspired ones of `found`, highest first. `found` may be in any order.
    pub(crate) fn choose(&self, found: impl IntoIterator<Item = i64>) -> Vec<i64> {
        let mut versions: Vec<i64> = found.into_iter().collect();
        versions.sort_unstable_by(|a, b| b.cmp(a));
        versions.dedup();
        match self {
            VersionPolicy::Latest(n) => {
                versions.truncate(usize::try_from((*n).max(1)).unwrap_or(usize::MAX));
            }
            VersionPolicy::All => {}
            VersionPolicy::Specific(wanted) => versions.retain(|found| wanted.contains(found)),
        }
        versions
    }
}

/// An entry of a model's folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Child {
    /// Its name, without the path.
    pub name: String,
    /// `true` if the entry is a folder, or leads to one.
    pub is_folder: bool,
}

/// The versions in a model's folder, and what looked like one but is none.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// The name of each version's folder.
    pub(crate) versions: BTreeMap<i64, String>,
    /// The reasons that entries are not versions, for one warning. Names without a number are
    /// passed over.
    pub(crate) ignored: Vec<String>,
}

/// Sorts out what stands in a model's folder.
pub(crate) fn find(children: &[Child]) -> Found {
    let mut sorted: Vec<&Child> = children.iter().collect();
    sorted.sort_by(|a, b| a.name.cmp(&b.name));
    let mut found = Found::default();
    for child in sorted {
        match parse(child) {
            Parsed::Version(version) => {
                // The later in the order of names wins, as in TensorFlow Serving.
                if let Some(earlier) = found.versions.insert(version, child.name.clone()) {
                    let reason = format!("`{earlier}` (version {version} is `{}`)", child.name);
                    found.ignored.push(reason);
                }
            }
            Parsed::Ignored(reason) => found.ignored.push(format!("`{}` ({reason})", child.name)),
            Parsed::Other => {}
        }
    }
    found
}

enum Parsed {
    Version(i64),
    Ignored(&'static str),
    Other,
}

fn parse(child: &Child) -> Parsed {
    let digits = child.name.strip_prefix('-').unwrap_or(&child.name);
    if !digits.starts_with(|c: char| c.is_ascii_digit()) {
        return Parsed::Other;
    }
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Parsed::Ignored("not a whole number");
    }
    match child.name.parse::<i64>() {
        Err(_) => Parsed::Ignored("too large"),
        Ok(version) if version < 0 => Parsed::Ignored("negative"),
        Ok(_) if !child.is_folder => Parsed::Ignored("not a folder"),
        Ok(version) => Parsed::Version(version),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `children` are names, files with a `!` behind them.
    #[track_caller]
    fn check_find(children: &str, versions: &[(i64, &str)], n_ignored: usize) {
        let children: Vec<Child> = children
            .split_whitespace()
            .map(|name| Child {
                name: name.trim_end_matches('!').to_owned(),
                is_folder: !name.ends_with('!'),
            })
            .collect();
        let found = find(&children);
        let named: Vec<(i64, &str)> =
            found.versions.iter().map(|(version, name)| (*version, name.as_str())).collect();
        assert_eq!(named, versions);
        assert_eq!(found.ignored.len(), n_ignored, "{:?}", found.ignored);
    }

    #[test]
    fn folders_with_a_number_for_a_name_are_versions() {
        check_find("1 2 00000123", &[(1, "1"), (2, "2"), (123, "00000123")], 0);
        check_find("0 9223372036854775807", &[(0, "0"), (i64::MAX, "9223372036854775807")], 0);
        check_find("assets README.md! .tmp v1 -", &[], 0);
    }

    #[test]
    fn what_only_looks_like_a_version_is_ignored_with_a_reason() {
        check_find("1.0 -1 99999999999999999999 3! 1_0 5a", &[], 6);
        check_find("-0", &[(0, "-0")], 0);
    }

    #[test]
    fn of_two_names_for_one_number_the_later_wins() {
        check_find("1 01", &[(1, "1")], 1);
        check_find("007 07 7", &[(7, "7")], 2);
    }

    #[track_caller]
    fn check_choose(policy: &VersionPolicy, found: &[i64], expected: &[i64]) {
        assert_eq!(policy.choose(found.iter().copied()), expected, "{policy:?}");
    }

    #[test]
    fn policies_choose_among_the_versions_found() {
        check_choose(&VersionPolicy::Latest(1), &[1, 3, 2], &[3]);
        check_choose(&VersionPolicy::Latest(0), &[1, 3, 2], &[3]);
        check_choose(&VersionPolicy::Latest(2), &[1, 3, 2], &[3, 2]);
        check_choose(&VersionPolicy::Latest(9), &[1], &[1]);
        check_choose(&VersionPolicy::All, &[1, 3, 2], &[3, 2, 1]);
        check_choose(&VersionPolicy::Specific(vec![1, 7]), &[1, 3], &[1]);
        check_choose(&VersionPolicy::Specific(vec![]), &[1, 3], &[]);
    }
}
