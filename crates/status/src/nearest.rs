//! The name that was meant by a mistyped one.

/// The name that is nearest to a mistyped one, if any is near.
pub fn nearest<'a>(typed: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let distance = |name: &str| match name.starts_with(typed) && typed.len() > 2 {
        true => 1,
        false => strsim::osa_distance(typed, name),
    };
    let far = typed.chars().count() / 3 + 1;
    let names = names.into_iter().filter(|name| *name != typed);
    let names = names.map(|name| (distance(name), name));
    names.filter(|(distance, _)| *distance < far.max(2)).min().map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_name_is_near_to_the_one_that_was_meant() {
        let names = ["inspect", "devices", "memory", "top"];
        let check = |typed: &str, expected| assert_eq!(nearest(typed, names), expected, "{typed}");
        check("insepct", Some("inspect"));
        check("device", Some("devices"));
        check("mem", Some("memory"));
        check("tpo", Some("top"));
        check("models", None);
        check("x", None);
        check("top", None);
    }
}
