//! The order in which the nodes of a scope can run.

use rustc_hash::FxHashMap;

use super::scope::Scope;
use crate::error::{Error, Result};
use crate::reference::Reference;

/// The nodes that `roots` depend on, each after all it depends on, roots included. Fed tensors and
/// what is emitted already are not followed; a loop is one with what leads out of it. Fails on a
/// cycle.
pub(super) fn order(scope: &Scope<'_>, roots: Vec<usize>) -> Result<Vec<usize>> {
    let nodes = &scope.body.nodes;
    let mut states = FxHashMap::default();
    let mut order = Vec::new();
    // A chain may be a million nodes deep, so the stack is ours: a node and its next input.
    let mut stack: Vec<(usize, usize)> = Vec::new();
    for root in roots {
        if !scope.emitted.contains_key(&root) && !states.contains_key(&root) {
            states.insert(root, OrderState::Open);
            stack.push((root, 0));
        }
        while let Some((node, next)) = stack.pop() {
            let Some((input, by)) = scope.dependency(node, next) else {
                states.insert(node, OrderState::Done);
                order.push(node);
                continue;
            };
            stack.push((node, next + 1));
            let Some(input) = input else { continue };
            let Some(target) = target(scope, input, &nodes[by].name)? else { continue };
            if scope.emitted.contains_key(&target) {
                continue;
            }
            match states.get(&target) {
                Some(OrderState::Done) => {}
                None => {
                    states.insert(target, OrderState::Open);
                    stack.push((target, 0));
                }
                Some(OrderState::Open) => {
                    let name = &nodes[target].name;
                    return Err(Error::Malformed(format!("node {name} depends on itself")));
                }
            }
        }
    }
    Ok(order)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OrderState {
    Open,
    Done,
}

/// The node behind an input; `None` if it is fed or an argument of the function.
pub(super) fn target(scope: &Scope<'_>, input: &str, by: &str) -> Result<Option<usize>> {
    let lost = || Error::NotFound { wanted: input.to_owned(), by: by.to_owned() };
    let reference = Reference::parse(input).ok_or_else(lost)?;
    let Some(node) = scope.body.find(reference.node()) else {
        let is_arg = scope.function.is_some_and(|f| f.arg(reference.node()).is_some());
        return if is_arg { Ok(None) } else { Err(lost()) };
    };
    match reference {
        Reference::Output(_, output) if scope.feeds.contains_key(&(node, output)) => Ok(None),
        // A node that is fed altogether does not run, so nothing waits for it.
        Reference::Control(_) if scope.feeds.contains_key(&(node, 0)) => Ok(None),
        _ => Ok(Some(node)),
    }
}
