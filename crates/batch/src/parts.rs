//! `Parts`: the answers to the pieces of one task, until they are all there.

use std::collections::BTreeMap;

use tensor::Tensor;

use crate::error::Result;
use crate::rows;

/// Collects the outputs of a task whose rows were spread over several batches.
#[derive(Debug)]
pub struct Parts {
    n_rows: usize,
    missing: usize,
    /// The outputs of each piece by its first row.
    parts: BTreeMap<usize, Vec<Tensor>>,
}

impl Parts {
    /// Nothing yet of a task of `n_rows` rows.
    pub fn new(n_rows: usize) -> Self {
        Self { n_rows, missing: n_rows, parts: BTreeMap::new() }
    }

    /// Takes the outputs of `n_rows` rows from `start` on. Gives the outputs of the whole task when
    /// that was the last piece.
    ///
    /// # Panics
    /// If the rows were there already.
    pub fn add(
        &mut self,
        start: usize,
        n_rows: usize,
        outputs: Vec<Tensor>,
    ) -> Option<Result<Vec<Tensor>>> {
        assert!(n_rows <= self.missing && start + n_rows <= self.n_rows);
        if start == 0 && n_rows == self.n_rows {
            self.missing = 0;
            return Some(Ok(outputs));
        }
        let before = self.parts.insert(start, outputs);
        assert!(before.is_none(), "row {start} was answered twice");
        self.missing -= n_rows;
        (self.missing == 0).then(|| rows::join(&self.parts.values().collect::<Vec<_>>()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_joined_in_the_order_of_their_rows() {
        let tensor = |values: &[i32]| vec![Tensor::vector(values).unwrap()];
        let mut parts = Parts::new(5);
        assert!(parts.add(3, 2, tensor(&[4, 5])).is_none());
        let whole = parts.add(0, 3, tensor(&[1, 2, 3])).unwrap().unwrap();
        assert_eq!(whole[0].as_slice::<i32>(), [1, 2, 3, 4, 5]);
    }

    #[test]
    fn a_task_in_one_piece_is_not_copied() {
        let tensor = Tensor::vector(&[1i32, 2]).unwrap();
        let whole = Parts::new(2).add(0, 2, vec![tensor.clone()]).unwrap().unwrap();
        assert!(whole[0].buffer().unwrap().shares_memory_with(tensor.buffer().unwrap()));
    }
}
