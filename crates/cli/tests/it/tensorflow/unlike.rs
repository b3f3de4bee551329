//! Requests of other shapes than their signature says, which TensorFlow does not refuse by
//! themselves.

use tensor::{Shape, Tensor};
use tonic::Code;

use super::{predict, spec, with_tensorflow};
use crate::golden::same;
use crate::support::{Server, tensord};
use crate::zoo::small_zoo;

/// A model, its input, the shape that its signature says without the rows, and shapes to send.
type Case = (&'static str, &'static str, &'static [usize], &'static [&'static [usize]]);

const CASES: &[Case] = &[
    ("gru", "x", &[7, 5], &[&[2, 7, 5], &[2, 4, 5], &[3, 11, 5], &[2, 7, 6], &[7, 5]]),
    ("mobilenet_v2", "input_layer", &[32, 32, 3], &[&[2, 32, 32, 3], &[2, 48, 40, 3]]),
    ("resnet50", "input_layer", &[32, 32, 3], &[&[2, 32, 32, 3], &[1, 64, 32, 3]]),
    ("xception", "input_layer", &[71, 71, 3], &[&[1, 71, 71, 3], &[2, 75, 96, 3]]),
    ("conv1d", "signal", &[40, 6], &[&[2, 40, 6], &[2, 24, 6], &[2, 40, 5], &[40, 6]]),
    ("separable", "image", &[21, 21, 3], &[&[1, 21, 21, 3], &[2, 15, 17, 3], &[1, 21, 21, 4]]),
    ("unet", "image", &[32, 32, 3], &[&[1, 32, 32, 3], &[2, 16, 48, 3], &[1, 30, 32, 3]]),
];

#[test]
fn requests_that_do_not_fit_their_signature_get_what_tensorflow_gives_them() {
    let zoo = small_zoo();
    let (mut n_answers, mut n_unlike, mut n_refused) = (0, 0, 0);
    for (model, input, like, shapes) in CASES {
        let folder = zoo.join(model).to_string_lossy().into_owned();
        let native = Server::start(tensord(), &["--engine=native", &folder]);
        let real = Server::start(with_tensorflow(tensord()), &["--engine=tensorflow", &folder]);
        for shape in *shapes {
            let shape = Shape::of(shape);
            let values: Vec<f32> =
                (0..shape.n_elements()).map(|n| (n % 23) as f32 / 23.0 - 0.4).collect();
            let tensor = Tensor::from_slice(shape.clone(), &values).unwrap();
            let ask = |server| predict(server, spec(model, ""), &[(*input, tensor.clone())]);
            let what = format!("{model} of {shape}");
            match (ask(&native), ask(&real)) {
                (Ok(got), Ok(want)) => {
                    assert!(want.keys().eq(got.keys()), "{what}");
                    for (alias, want) in want {
                        same(&want, &got[&alias])
                            .unwrap_or_else(|why| panic!("{what}: {alias}: {why}"));
                    }
                    n_answers += 1;
                    n_unlike += usize::from(shape.dims().get(1..) != Some(like));
                }
                // What TensorFlow's own kernels refuse as we do, oneDNN's call INTERNAL.
                (Err((got, _)), Err((want, text))) => {
                    assert_eq!(got, Code::InvalidArgument, "{what}: {text}");
                    assert!(
                        matches!(want, Code::InvalidArgument | Code::Internal),
                        "{what}: {text}"
                    );
                    n_refused += 1;
                }
                (got, want) => panic!("{what}: expected {want:?} but got {got:?}"),
            }
        }
    }
    assert!(n_answers > n_unlike && n_unlike >= 4 && n_refused >= 4, "{n_unlike} {n_refused}");
}
