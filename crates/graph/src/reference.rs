//! References to tensors and nodes, as they stand in `GraphDef`s and `FunctionDef`s.

/// The target of an input of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reference<'a> {
    /// `^node`: the node runs before.
    Control(&'a str),
    /// `node` or `node:2`: an output by its number.
    Output(&'a str, usize),
    /// `node:arg:2`: an output by the name of its argument and the place in it.
    Named(&'a str, &'a str, usize),
}

impl<'a> Reference<'a> {
    /// Reads a reference. `None` if a number in it is none.
    pub(crate) fn parse(text: &'a str) -> Option<Self> {
        if let Some(node) = text.strip_prefix('^') {
            return Some(Self::Control(node));
        }
        let mut parts = text.split(':');
        let node = parts.next()?;
        match (parts.next(), parts.next(), parts.next()) {
            (None, _, _) => Some(Self::Output(node, 0)),
            (Some(number), None, _) => Some(Self::Output(node, number.parse().ok()?)),
            (Some(arg), Some(number), None) => Some(Self::Named(node, arg, number.parse().ok()?)),
            _ => None,
        }
    }

    /// The node it refers to.
    pub(crate) fn node(self) -> &'a str {
        match self {
            Self::Control(node) | Self::Output(node, _) | Self::Named(node, _, _) => node,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_of_graphs_and_functions_are_read() {
        assert_eq!(Reference::parse("a/b"), Some(Reference::Output("a/b", 0)));
        assert_eq!(Reference::parse("a:2"), Some(Reference::Output("a", 2)));
        assert_eq!(Reference::parse("^a"), Some(Reference::Control("a")));
        assert_eq!(Reference::parse("a:values:1"), Some(Reference::Named("a", "values", 1)));
        assert_eq!(Reference::parse("a:b"), None);
        assert_eq!(Reference::parse("a:b:c:d"), None);
    }
}
