use super::*;

fn ints(dims: &[usize], values: &[i32]) -> Tensor {
    Tensor::from_slice(Shape::of(dims), values).unwrap()
}

fn strings(dims: &[usize], values: &[&str]) -> Tensor {
    Tensor::from_strings(Shape::of(dims), Strings::collect(values).unwrap()).unwrap()
}

/// Merges whole tasks of one input each.
fn merged(tasks: &[Tensor], n_padded: usize) -> Result<Tensor> {
    let pieces: Vec<_> =
        tasks.iter().map(|task| (std::slice::from_ref(task), 0..task.shape()[0])).collect();
    Ok(merge(&pieces, n_padded)?.remove(0))
}

#[test]
fn rows_are_counted_as_tensorflow_serving_counts_them() {
    let check = |inputs: &[Tensor], expected| assert_eq!(n_rows(inputs), expected);
    check(&[], Err(Error::NoInputs));
    check(&[ints(&[2], &[1, 2]), Tensor::scalar(1i32).unwrap()], Err(Error::ScalarInput));
    check(&[ints(&[2], &[1, 2]), ints(&[1, 2], &[1, 2])], Err(Error::UnequalRows));
    check(&[ints(&[2], &[1, 2]), ints(&[2, 0], &[])], Ok(2));
}

#[test]
fn the_first_row_of_the_last_task_fills_up_a_batch() {
    let tasks = [ints(&[1, 2], &[1, 2]), ints(&[2, 2], &[3, 4, 5, 6])];
    let batch = merged(&tasks, 5).unwrap();
    assert_eq!(batch.shape().dims(), [5, 2]);
    assert_eq!(batch.as_slice::<i32>(), [1, 2, 3, 4, 5, 6, 3, 4, 3, 4]);
    let texts = merged(&[strings(&[1], &["a"]), strings(&[2], &["b", "c"])], 4).unwrap();
    assert_eq!(texts.strings().iter().collect::<Vec<_>>(), [b"a", b"b", b"c", b"b"]);
}

#[test]
fn shorter_tasks_are_filled_up_with_their_own_first_element() {
    let tasks = [ints(&[1, 2], &[1, 2]), ints(&[1, 3], &[7, 8, 9])];
    let batch = merged(&tasks, 2).unwrap();
    assert_eq!(batch.shape().dims(), [2, 3]);
    assert_eq!(batch.as_slice::<i32>(), [1, 2, 1, 7, 8, 9]);
    let texts = merged(&[strings(&[1, 1], &["a"]), strings(&[1, 2], &["b", "c"])], 2).unwrap();
    assert_eq!(texts.strings().iter().collect::<Vec<_>>(), [b"a", b"a", b"b", b"c"]);
    let deep = merged(&[ints(&[1, 1, 2], &[1, 2]), ints(&[1, 2, 1], &[3, 4])], 2).unwrap();
    assert_eq!(deep.as_slice::<i32>(), [1, 2, 1, 1, 3, 3, 4, 3]);
    let wide = |n: usize| ints(&[1, 1, 1, 1, 1, 1, n], &vec![0; n]);
    assert_eq!(merged(&[wide(1), wide(2)], 2).unwrap_err(), Error::PaddedRank);
}

#[test]
fn a_single_task_is_not_copied() {
    let task = ints(&[2, 2], &[1, 2, 3, 4]);
    let batch = merged(std::slice::from_ref(&task), 2).unwrap();
    assert!(batch.buffer().unwrap().shares_memory_with(task.buffer().unwrap()));
    let part = slice(&task, 1..2).unwrap();
    assert_eq!(part.as_slice::<i32>(), [3, 4]);
}

#[test]
fn each_task_gets_its_rows_back_and_padding_is_dropped() {
    let outputs = [ints(&[4, 1], &[1, 2, 3, 4]), strings(&[4], &["a", "b", "c", "d"])];
    let answers = split(&outputs, &[1, 2], 4).unwrap();
    assert_eq!(answers[0][0].as_slice::<i32>(), [1]);
    assert_eq!(answers[1][0].as_slice::<i32>(), [2, 3]);
    assert_eq!(answers[1][1].strings().iter().collect::<Vec<_>>(), [b"b", b"c"]);
    let scalar = [Tensor::scalar(1i32).unwrap()];
    assert_eq!(split(&scalar, &[1], 1).unwrap_err(), Error::ScalarOutput);
    assert_eq!(split(&outputs, &[2, 1], 3).unwrap_err(), Error::OutputRows);
}

#[test]
fn an_answer_does_not_keep_its_batch_alive() {
    let outputs = [ints(&[2, 1], &[1, 2])];
    let answers = split(&outputs, &[1, 1], 2).unwrap();
    let whole = outputs[0].buffer().unwrap();
    assert!(!answers[0][0].buffer().unwrap().shares_memory_with(whole));
}

#[test]
fn what_was_merged_comes_apart_again() {
    for sizes in [&[1usize, 1][..], &[3, 1, 2], &[0, 2], &[5]] {
        let mut next = 0;
        let tasks: Vec<Tensor> = sizes
            .iter()
            .map(|n| {
                let values: Vec<i32> = (next..).take(n * 3).collect();
                next += i32::try_from(values.len()).unwrap();
                ints(&[*n, 3], &values)
            })
            .collect();
        let batch = merged(&tasks, 8).unwrap();
        let answers = split(&[batch], sizes, 8).unwrap();
        for (task, answer) in tasks.iter().zip(answers) {
            assert_eq!(task.as_slice::<i32>(), answer[0].as_slice::<i32>());
        }
    }
}

#[test]
fn only_like_shapes_share_a_class() {
    let class = |tensor: &Tensor, pads| Class::new(std::slice::from_ref(tensor), pads);
    let (one, two) = (ints(&[1, 2], &[1, 2]), ints(&[2, 2], &[1, 2, 3, 4]));
    let other = ints(&[1, 3], &[1, 2, 3]);
    assert_eq!(class(&one, false), class(&two, false));
    assert_ne!(class(&one, false), class(&other, false));
    assert_eq!(class(&one, true), class(&other, true));
    assert_ne!(class(&one, true), class(&ints(&[1], &[1]), true));
}
