//! Sentences that `adopt` and `release` share.

/// A list such as `a, b and c`.
pub(in crate::commands) fn and_list(items: &[impl AsRef<str>]) -> String {
    let items: Vec<&str> = items.iter().map(AsRef::as_ref).collect();
    match items.split_last() {
        Some((last, before)) if !before.is_empty() => format!("{} and {last}", before.join(", ")),
        _ => items.concat(),
    }
}

/// The clients to restart, each once.
pub(in crate::commands) fn clients_of<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut clients: Vec<&str> = Vec::new();
    for name in names {
        if !clients.contains(&name) {
            clients.push(name);
        }
    }
    clients
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_written_as_people_do() {
        assert_eq!(and_list(&[""; 0]), "");
        assert_eq!(and_list(&["a"]), "a");
        assert_eq!(and_list(&["a", "b"]), "a and b");
        assert_eq!(and_list(&["a", "b", "c"]), "a, b and c");
        assert_eq!(clients_of(["x", "y", "x"].into_iter()), ["x", "y"]);
    }
}
