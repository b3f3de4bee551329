//! An engine that knows a few signatures by name.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, Weak};

use prost::Message as _;
use proto::tensorflow::Example;
use proto::tensorflow::feature::Kind;
use session::{Batching, Engine, Priorities, QueueState, Reply, Run};
use status::{Result, Status};
use tensor::{DType, Shape, Strings, Tensor};
use tokio::sync::Notify;

/// Runs of the signature `gated` wait here until they are let go.
#[derive(Clone, Default)]
pub(crate) struct Gate {
    waiting: Arc<Mutex<VecDeque<(Run, Reply)>>>,
    came: Arc<Notify>,
}

impl Gate {
    /// Waits for a run to come.
    pub(crate) async fn take(&self) -> (Run, Reply) {
        loop {
            let came = self.came.notified();
            if let Some(run) = self.waiting.lock().unwrap().pop_front() {
                return run;
            }
            came.await;
        }
    }

    /// Returns how many runs are waiting.
    pub(crate) fn len(&self) -> usize {
        self.waiting.lock().unwrap().len()
    }

    fn push(&self, run: Run, reply: Reply) {
        self.waiting.lock().unwrap().push_back((run, reply));
        self.came.notify_waiters();
    }
}

/// The engine.
pub(crate) struct Fake {
    pub(crate) gate: Gate,
}

impl Engine for Fake {
    fn start(&self, run: Run, reply: Reply) {
        if run.signature == "gated" {
            return self.gate.push(run, reply);
        }
        let answer = answer(&run).map(|all| run.outputs.iter().map(|n| all[*n].clone()).collect());
        reply(answer);
    }

    fn name(&self) -> &'static str {
        "fake"
    }

    fn set_batching(&self, _: &Batching) -> Result<()> {
        Ok(())
    }

    fn set_priorities(&self, _: &Priorities) -> Result<()> {
        Ok(())
    }

    fn expect(&self) {}

    fn prepare(&self) {}

    fn forecast(&self, _: &Run) -> Option<schedule::Replica> {
        None
    }

    fn end(&self) -> Option<Weak<()>> {
        None
    }

    fn queues(&self) -> Vec<QueueState> {
        Vec::new()
    }
}

/// All outputs of a run, in the order of their names.
pub(crate) fn answer(run: &Run) -> Result<Vec<Tensor>> {
    match run.signature.as_str() {
        "serving_default" | "gated" => Ok(vec![half_plus_two(&run.inputs[0])?]),
        "two" => two(run),
        "bytes" => Ok(vec![run.inputs[0].clone(), run.inputs[0].clone()]),
        "counter" => Ok(vec![Tensor::scalar(1f32).unwrap()]),
        "half" => Ok(vec![Tensor::zeros(DType::F16, Shape::of(&[1])).unwrap()]),
        "regress" | "classify" => Ok(vec![regress(&run.inputs[0], 1)?]),
        "wide" => Ok(vec![regress(&run.inputs[0], 2)?]),
        "labels" => Ok(vec![labels(&run.inputs[0])?, regress(&run.inputs[0], 2)?]),
        "panics" => Err(Status::internal("the run was lost: a kernel panicked")),
        "full" => Err(Status::unavailable("the queue is full")),
        "wrong" => Err(Status::invalid("é".repeat(2000))),
        other => panic!("no signature {other}"),
    }
}

fn half_plus_two(x: &Tensor) -> Result<Tensor> {
    if x.dtype() != DType::F32 {
        let text = format!("Expects arg[0] to be float but {} is provided", x.dtype());
        return Err(Status::invalid(text));
    }
    let y: Vec<f32> = x.as_slice::<f32>().iter().map(|x| x / 2.0 + 2.0).collect();
    Ok(Tensor::from_slice(x.shape().clone(), &y).unwrap())
}

/// `a + b`, and `a` as it is.
fn two(run: &Run) -> Result<Vec<Tensor>> {
    let (a, b) = (run.inputs[0].as_slice::<f32>(), run.inputs[1].as_slice::<f32>());
    let sum: Vec<f32> = a.iter().zip(b).map(|(a, b)| a + b).collect();
    let shape = Shape::of(&[sum.len()]);
    Ok(vec![run.inputs[0].clone(), Tensor::from_slice(shape, &sum).unwrap()])
}

/// Half of the feature `x` plus two for each example, in so many columns.
fn regress(examples: &Tensor, n_columns: usize) -> Result<Tensor> {
    let mut values = Vec::new();
    for bytes in examples.strings().iter() {
        let wrong = |text: &str| Status::invalid(text.to_owned());
        let example = Example::decode(bytes).map_err(|_| wrong("Could not parse example input"))?;
        let feature = example.features.unwrap_or_default().feature.remove("x");
        let Some(Kind::FloatList(list)) = feature.and_then(|feature| feature.kind) else {
            return Err(wrong("Feature: x (data type: float) is required but could not be found."));
        };
        values.extend((0..n_columns).map(|column| list.value[0] / 2.0 + 2.0 + column as f32));
    }
    let shape = Shape::of(&[examples.n_elements(), n_columns]);
    Ok(Tensor::from_slice(shape, &values).unwrap())
}

/// `no` and `yes` for each example, or its feature `label` and `yes`.
fn labels(examples: &Tensor) -> Result<Tensor> {
    let label = |bytes: &[u8]| {
        let feature = Example::decode(bytes).ok()?.features?.feature.remove("label")?;
        let Kind::BytesList(list) = feature.kind? else { return None };
        list.value.first().map(|label| label.to_vec())
    };
    let pair = |bytes: &[u8]| [label(bytes).unwrap_or(b"no".to_vec()), b"yes".to_vec()];
    let strings = Strings::collect(examples.strings().iter().flat_map(pair)).unwrap();
    Ok(Tensor::from_strings(Shape::of(&[examples.n_elements(), 2]), strings).unwrap())
}
