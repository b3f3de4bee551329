//! Matrix products and convolutions of common models, through the ops as a plan calls them.
//!
//! `cargo bench -p ops --bench kernels -- [FILTER] [--threads N] [--set avx512|avx2|scalar]` prints
//! GFLOP/s: the median of samples that are taken for a while. With one thread, what counts is the
//! time that the thread had a core, so that a busy machine disturbs little.

#![allow(clippy::print_stdout, reason = "the report goes there")]

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::Duration;

use ops::{Attrs, Cancel, Ctx, Env, NoFiles, NoFunctions, Op, Output, Resources};
use pool::Pool;
use proto::tensorflow::AttrValue;
use proto::tensorflow::attr_value::{ListValue, Value};
use rustix::time::{ClockId, clock_gettime};
use tensor::{DType, Shape, Spec, Tensor};

/// Rows, columns and inner dimension of products, from dense, transformer and image models.
const PRODUCTS: &[(usize, usize, usize)] = &[
    (1, 512, 784),
    (1, 768, 768),
    (1, 3072, 768),
    (1, 4096, 4096),
    (8, 512, 512),
    (8, 768, 768),
    (8, 3072, 768),
    (8, 4096, 4096),
    (128, 128, 32),
    (128, 384, 384),
    (128, 1536, 384),
    (128, 768, 768),
    (128, 3072, 768),
    (128, 768, 3072),
    (1024, 768, 768),
    (49, 512, 4608),
    (196, 256, 256),
    (196, 1024, 256),
    (196, 256, 2304),
    (196, 384, 64),
    (784, 128, 512),
    (784, 128, 1152),
    (784, 192, 32),
    (3136, 64, 64),
    (3136, 64, 576),
    (3136, 256, 64),
    (12544, 96, 16),
    (1024, 1024, 1024),
    (512, 4096, 4096),
];

/// Size of a square image, its channels, outputs, size of a square window and stride.
const CONVOLUTIONS: &[(usize, usize, usize, usize, usize)] = &[
    (224, 3, 64, 7, 2),
    (224, 3, 32, 3, 2),
    (56, 64, 64, 3, 1),
    (56, 64, 256, 1, 1),
    (56, 256, 512, 1, 2),
    (28, 128, 128, 3, 1),
    (14, 256, 256, 3, 1),
    (7, 512, 512, 3, 1),
    (112, 16, 96, 1, 1),
    (56, 24, 144, 1, 1),
    (28, 192, 32, 1, 1),
    (7, 960, 320, 1, 1),
];

/// Size of a square image, channels, size of a square window and stride.
const DEPTHWISE: &[(usize, usize, usize, usize)] = &[
    (112, 32, 3, 1),
    (112, 96, 3, 2),
    (56, 144, 3, 1),
    (28, 192, 3, 1),
    (14, 576, 3, 1),
    (7, 960, 3, 1),
    (28, 240, 5, 2),
    (14, 672, 5, 1),
];

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let after = |flag: &str| args.iter().position(|arg| arg == flag).map(|at| args[at + 1].clone());
    let threads = after("--threads").map_or(1, |n| n.parse().expect("a number of threads"));
    let is_set = |arg: &str| ops::instruction_sets().contains(&arg);
    let is_filter = |arg: &&String| {
        !arg.starts_with('-') && arg.parse::<f64>().is_err() && !is_set(arg.as_str())
    };
    let filter = args.iter().find(is_filter);
    let wanted = |name: &str| filter.is_none_or(|filter| name.contains(filter.as_str()));
    if let Some(set) = after("--set") {
        assert!(ops::use_instruction_set(&set), "one of {:?}", ops::instruction_sets());
    }
    println!("{}", ops::instruction_set());
    let pool = Pool::new(threads);
    for (rows, columns, inner) in PRODUCTS {
        let name = format!("matmul {rows}x{columns}x{inner}");
        if wanted(&name) {
            let call = Call::new("MatMul", &[], &[&[*rows, *inner], &[*inner, *columns]]);
            call.report(&name, &pool, 2 * rows * columns * inner);
        }
    }
    for (size, ins, outs, window, stride) in CONVOLUTIONS {
        let name = format!("conv {size}x{size}x{ins} -> {outs}, {window}x{window} / {stride}");
        if wanted(&name) {
            let shapes: [&[usize]; 2] =
                [&[1, *size, *size, *ins], &[*window, *window, *ins, *outs]];
            let call = Call::new("Conv2D", &sliding(*stride), &shapes);
            let places = size.div_ceil(*stride).pow(2);
            call.report(&name, &pool, 2 * places * window * window * ins * outs);
        }
    }
    for (size, channels, window, stride) in DEPTHWISE {
        let name = format!("depthwise {size}x{size}x{channels}, {window}x{window} / {stride}");
        if wanted(&name) {
            let shapes: [&[usize]; 2] =
                [&[1, *size, *size, *channels], &[*window, *window, *channels, 1]];
            let call = Call::new("DepthwiseConv2dNative", &sliding(*stride), &shapes);
            let places = size.div_ceil(*stride).pow(2);
            call.report(&name, &pool, 2 * places * window * window * channels);
        }
    }
}

/// The attributes of a window that slides this far, with padding at the edges.
fn sliding(stride: usize) -> Vec<(&'static str, Value)> {
    let stride = i64::try_from(stride).expect("a small stride");
    let strides = ListValue { i: vec![1, stride, stride, 1], ..ListValue::default() };
    vec![
        ("strides", Value::List(Box::new(strides))),
        ("padding", Value::S(b"SAME".to_vec().into())),
    ]
}

/// An op with its inputs.
struct Call {
    op: Box<dyn Op>,
    inputs: Vec<Tensor>,
}

impl Call {
    fn new(name: &str, attrs: &[(&str, Value)], shapes: &[&[usize]]) -> Self {
        let attrs: BTreeMap<String, AttrValue> = attrs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), AttrValue { value: Some(value.clone()) }))
            .collect();
        let op = (ops::find(name).expect("an op").build)(&Attrs::new(&attrs)).expect("attributes");
        let inputs = shapes.iter().map(|dims| random(&Shape::of(dims))).collect();
        Self { op, inputs }
    }

    /// Prints the speed of the op with its second input packed.
    fn report(&self, name: &str, pool: &Pool, flops: usize) {
        let specs: Vec<Spec> = self
            .inputs
            .iter()
            .enumerate()
            .map(|(i, input)| match i {
                0 => Spec::concrete(input.dtype(), input.shape()),
                _ => Spec::constant(input.clone()),
            })
            .collect();
        let outputs = self.op.infer(&specs).expect("shapes");
        let shape = outputs[0].shape().expect("a concrete shape");
        let mut out = Tensor::zeros(DType::F32, shape).expect("memory");
        let packed = [None, self.op.pack(1, &self.inputs[1]).expect("packed")];
        let mut scratch = vec![0u32; self.op.scratch_bytes(&specs, &outputs) / 4];
        let env = Env {
            pool,
            functions: &NoFunctions,
            files: &NoFiles,
            resources: &Resources::default(),
            cancel: &Cancel::default(),
        };
        let mut run = || {
            let planned = Output::Planned(out.view_mut().expect("one owner"));
            let views = self.inputs.iter().map(Tensor::view);
            let mut ctx = Ctx::new(views, [planned], &env);
            ctx.set_packed(&packed);
            ctx.set_scratch(bytemuck::cast_slice_mut(&mut scratch));
            self.op.run(black_box(&mut ctx)).expect("a run");
        };
        let alone = pool.n_threads() == 1;
        let clock = if alone { ClockId::ThreadCPUTime } else { ClockId::Monotonic };
        let seconds = median(clock, &mut run);
        let rate = flops as f64 / seconds / 1e9;
        println!("{name:40} {:>9.1} µs {rate:>7.1} GFLOP/s", seconds * 1e6);
    }
}

/// The median time of a call on this clock.
fn median(clock: ClockId, run: &mut impl FnMut()) -> f64 {
    let now = || {
        let time = clock_gettime(clock);
        Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
    };
    let end = now() + Duration::from_millis(200);
    let mut samples = Vec::new();
    while samples.len() < 20 || now() < end && samples.len() < 100_000 {
        let start = now();
        run();
        samples.push(now() - start);
    }
    samples.sort_unstable();
    samples[samples.len() / 2].as_secs_f64()
}

/// Numbers in [-1, 1).
fn random(shape: &Shape) -> Tensor {
    let mut x = 1u64;
    let values: Vec<f32> = (0..shape.n_elements())
        .map(|_| {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (x >> 40) as f32 / (1 << 23) as f32 - 1.
        })
        .collect();
    Tensor::from_slice(shape.clone(), &values).expect("memory")
}
