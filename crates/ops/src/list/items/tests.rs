use super::*;

fn numbers(items: &Items) -> Vec<i32> {
    items.iter().map(|item| item.map_or(-1, |item| item.as_slice::<i32>()[0])).collect()
}

fn number(n: i32) -> Tensor {
    Tensor::scalar(n).unwrap()
}

/// Checks that changes of a copy are not seen in a list of the numbers 0 to 69.
fn check_copies(old: &Items) {
    let mut new = old.try_clone().unwrap();
    new.set(33, number(1000)).unwrap();
    new.pop().unwrap();
    new.resize(72).unwrap();
    assert_eq!(numbers(old), (0..70).collect::<Vec<_>>());
    assert_eq!((old.shape(), new.shape()), (Some(&Shape::scalar()), None));
    let mut expected: Vec<i32> = (0..69).collect();
    expected[33] = 1000;
    expected.extend([-1; 3]);
    assert_eq!(numbers(&new), expected);
    assert!(new.get(71).is_none() && new.get(0).is_some());
    new.resize(0).unwrap();
    assert!(new.pop().unwrap().is_none() && new.len() == 0);
}

#[test]
fn copies_do_not_see_each_others_changes() {
    check_copies(&Items::collect((0..70).map(number)).unwrap());
    let rows: Vec<i32> = (0..70).collect();
    check_copies(&Items::rows(Tensor::vector(&rows).unwrap()));
}

#[test]
fn items_that_are_set_in_place_are_rows_of_one_tensor() {
    let mut items = Items::default();
    items.resize(3).unwrap();
    for (index, n) in [(2, 7), (0, 5), (2, 8)] {
        items.set_in_place(index, &number(n).view()).unwrap();
        assert!(items.stacked().is_none() && items.shape().is_none());
    }
    assert_eq!(numbers(&items), [5, -1, 8]);
    items.set_in_place(1, &number(6).view()).unwrap();
    assert_eq!(items.stacked().unwrap().as_slice::<i32>(), [5, 6, 8]);
    // Another has them too, so they are no longer changed in place.
    let other = items.try_clone().unwrap();
    items.set_in_place(1, &number(9).view()).unwrap();
    assert_eq!((numbers(&items), numbers(&other)), (vec![5, 9, 8], vec![5, 6, 8]));
    assert!(items.stacked().is_none() && items.shape() == Some(&Shape::scalar()));
}

#[test]
fn an_item_of_another_shape_is_taken_too() {
    let mut items = Items::default();
    items.resize(2).unwrap();
    items.set_in_place(0, &number(1).view()).unwrap();
    items.set_in_place(1, &Tensor::vector(&[2i32, 3]).unwrap().view()).unwrap();
    assert_eq!((numbers(&items), items.shape()), (vec![1, 2], None));
}
