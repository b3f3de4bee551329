//! Says what models need before they are loaded, then loads and runs them and measures.
//!
//! ```sh
//! cargo run --release -p native --example needs -- DIR... [--batches 1,2,4,8] [--length 1] [--gpu]
//! ```
//!
//! `--length` is what sizes are that signatures leave open, such as of sequences. With `--gpu` on a
//! played GPU, whose strings and tables are on the host. One JSON line for each model and batch
//! size: predicted and measured bytes, and their ratio.
#![allow(clippy::print_stdout, reason = "it prints its figures")]

use std::error::Error;
use std::sync::Arc;

use native::Sizes;
use native::measure::{Measured, measure};

fn main() -> Result<(), Box<dyn Error>> {
    let mut batches = vec![1, 2, 4, 8, 16, 32, 64];
    let (mut dirs, mut kind, mut length) = (Vec::new(), device::Kind::Cpu, 1);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        if arg == "--batches" {
            let list = args.next().ok_or("--batches wants numbers with commas between them")?;
            batches = list.split(',').map(str::parse).collect::<Result<_, _>>()?;
        } else if arg == "--length" {
            length = args.next().ok_or("--length wants a number")?.parse()?;
        } else if arg == "--gpu" {
            kind = device::Kind::Gpu;
        } else {
            dirs.push(arg);
        }
    }
    let pool = Arc::new(pool::Pool::new(2));
    let batches: Vec<Sizes> = batches.iter().map(|rows| Sizes { rows: *rows, length }).collect();
    for dir in dirs {
        match measure(&storage::open(&dir)?, &batches, &pool, kind) {
            Ok(rows) => rows.iter().for_each(|row| print(&dir, row)),
            Err(error) => println!("{{\"model\":\"{dir}\",\"error\":{:?}}}", error.to_string()),
        }
    }
    Ok(())
}

fn print(dir: &str, row: &Measured) {
    let ratio = row.predicted_bytes as f64 / (row.measured_bytes as f64).max(1.0);
    println!(
        "{{\"model\":\"{dir}\",\"what\":\"{}\",\"predicted\":{},\"measured\":{},\
         \"ratio\":{ratio:.6},\"is_static\":{}}}",
        row.what, row.predicted_bytes, row.measured_bytes, row.is_static
    );
}
