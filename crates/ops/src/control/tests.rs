//! The functions of these tests are Rust: `+1` adds one, `<3` compares, and so on.

use std::collections::BTreeMap;

use pool::Pool;
use proto::tensorflow::attr_value::{ListValue, Value};
use proto::tensorflow::{AttrValue, NameAttrList};
use tensor::{DType, Dim, Shape, Spec, Strings, Symbol, Tensor};

use crate::{Attrs, Cancel, Ctx, Env, Error, Functions, NoFiles, Output, Resources, Result};

struct Fake;

impl Functions for Fake {
    fn infer(&self, function: &str, inputs: &[Spec]) -> Result<Vec<Spec>> {
        Ok(match function {
            "grow" => {
                vec![Spec::new(DType::I32, [inputs[0].dims().unwrap()[0].plus(&Dim::Known(1))])]
            }
            "rank" => vec![Spec::unknown(DType::I32)],
            _ => vec![inputs[0].with_dtype(DType::I32)],
        })
    }

    fn call(&self, function: &str, inputs: &[Tensor], env: &Env<'_>) -> Result<Vec<Tensor>> {
        let x = inputs[0].as_slice::<i32>()[0];
        Ok(match function {
            "+1" => vec![Tensor::scalar(x + 1)?],
            "*2" => vec![Tensor::scalar(x * 2)?],
            "<30" => vec![Tensor::from_bytes(DType::Bool, Shape::scalar(), &[u8::from(x < 30)])?],
            "always" => {
                if x == 5 {
                    env.cancel.cancel();
                }
                vec![Tensor::scalar(1i32)?]
            }
            "two" => vec![Tensor::scalar(x)?, Tensor::scalar(x)?],
            _ => return Err(Error::NotFound(function.to_owned())),
        })
    }
}

fn function(name: &str) -> NameAttrList {
    NameAttrList { name: name.to_owned(), ..NameAttrList::default() }
}

/// The attributes `name=function`, and `branches` as a list of all that are given with that name.
fn attrs(functions: &[(&str, &str)]) -> BTreeMap<String, AttrValue> {
    let mut attrs = BTreeMap::new();
    let branches: Vec<_> =
        functions.iter().filter(|f| f.0 == "branches").map(|f| function(f.1)).collect();
    let list = Value::List(Box::new(ListValue { func: branches, ..ListValue::default() }));
    attrs.insert("branches".to_owned(), AttrValue { value: Some(list) });
    for (name, target) in functions.iter().filter(|f| f.0 != "branches") {
        let value = Some(Value::Func(Box::new(function(target))));
        attrs.insert((*name).to_owned(), AttrValue { value });
    }
    attrs
}

fn run(op: &str, functions: &[(&str, &str)], inputs: &[Tensor]) -> Result<i32> {
    let op = (crate::find(op).unwrap().build)(&Attrs::new(&attrs(functions)))?;
    let (pool, resources, cancel) = (Pool::new(1), Resources::default(), Cancel::default());
    let env = Env {
        pool: &pool,
        functions: &Fake,
        files: &NoFiles,
        resources: &resources,
        cancel: &cancel,
    };
    let mut ctx = Ctx::new(inputs.iter().map(Tensor::view), [Output::Open(None)], &env);
    op.run(&mut ctx)?;
    Ok(ctx.finish()?[0].1.as_slice::<i32>()[0])
}

fn infer(op: &str, functions: &[(&str, &str)], inputs: &[Spec]) -> String {
    let op = (crate::find(op).unwrap().build)(&Attrs::new(&attrs(functions))).unwrap();
    let specs = op.infer_with(inputs, &Fake).unwrap();
    specs.iter().map(ToString::to_string).collect()
}

fn ints(values: &[i32]) -> Vec<Tensor> {
    values.iter().map(|value| Tensor::scalar(*value).unwrap()).collect()
}

#[test]
fn calls_hand_inputs_in_and_outputs_out() {
    for op in ["PartitionedCall", "StatefulPartitionedCall", "BatchFunction"] {
        assert_eq!(run(op, &[("f", "+1")], &ints(&[4])), Ok(5));
    }
    let too_many = run("PartitionedCall", &[("f", "two")], &ints(&[4]));
    assert!(matches!(too_many, Err(Error::InvalidArgument(_))));
}

#[test]
fn an_if_takes_the_branch_of_its_condition() {
    let branches = [("then_branch", "+1"), ("else_branch", "*2")];
    for op in ["If", "StatelessIf"] {
        assert_eq!(run(op, &branches, &ints(&[7, 10])), Ok(11));
        assert_eq!(run(op, &branches, &ints(&[0, 10])), Ok(20));
    }
    let empty = Tensor::zeros(DType::F32, Shape::of(&[0])).unwrap();
    let text = |text: &str| {
        Tensor::from_strings(Shape::scalar(), Strings::collect([text]).unwrap()).unwrap()
    };
    let ten = || ints(&[10]).remove(0);
    assert_eq!(run("If", &branches, &[empty, ten()]), Ok(20));
    assert_eq!(run("If", &branches, &[text("x"), ten()]), Ok(11));
    assert_eq!(run("If", &branches, &[text(""), ten()]), Ok(20));
}

#[test]
fn a_case_takes_its_last_branch_for_any_other_number() {
    let branches = [("branches", "+1"), ("branches", "*2")];
    for op in ["Case", "StatelessCase"] {
        assert_eq!(run(op, &branches, &ints(&[0, 10])), Ok(11));
        assert_eq!(run(op, &branches, &ints(&[1, 10])), Ok(20));
        assert_eq!(run(op, &branches, &ints(&[9, 10])), Ok(20));
        assert_eq!(run(op, &branches, &ints(&[-1, 10])), Ok(20));
    }
    assert!(run("Case", &[], &ints(&[0, 1])).is_err());
}

#[test]
fn a_while_goes_on_until_its_condition_fails() {
    for op in ["While", "StatelessWhile"] {
        assert_eq!(run(op, &[("cond", "<30"), ("body", "*2")], &ints(&[1])), Ok(32));
        assert_eq!(run(op, &[("cond", "<30"), ("body", "*2")], &ints(&[99])), Ok(99));
    }
}

#[test]
fn an_endless_while_ends_when_it_is_cancelled() {
    let endless = run("While", &[("cond", "always"), ("body", "+1")], &ints(&[0]));
    assert_eq!(endless, Err(Error::Cancelled));
}

#[test]
fn loops_keep_the_dimensions_that_do_not_change() {
    let same = [("cond", "c"), ("body", "same")];
    let n = Dim::symbol(Symbol(0));
    let matrix = Spec::new(DType::I32, [n, Dim::Known(3)]);
    assert_eq!(infer("While", &same, &[matrix]), "int32[n0,3]");
    let grow = [("cond", "c"), ("body", "grow")];
    let vector = Spec::new(DType::I32, [Dim::Known(1)]);
    assert_eq!(infer("While", &grow, std::slice::from_ref(&vector)), "int32[?]");
    assert_eq!(infer("While", &[("cond", "c"), ("body", "rank")], &[vector]), "int32<unknown>");
}

#[test]
fn branches_keep_the_dimensions_they_agree_on() {
    let branches = [("then_branch", "grow"), ("else_branch", "same")];
    let open = Spec::scalar(DType::Bool);
    let vector = Spec::new(DType::I32, [Dim::Known(1)]);
    assert_eq!(infer("If", &branches, &[open, vector.clone()]), "int32[?]");
    let no = Tensor::from_bytes(DType::Bool, Shape::scalar(), &[0]).unwrap();
    assert_eq!(infer("If", &branches, &[Spec::constant(no), vector]), "int32[1]");
}
