//! `tensord keys new`: makes an API key, which is shown once, and the entry of the file that lets
//! its holder in.

use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::{Parser, Subcommand};
use serde_json::json;
use server::say;

use crate::table::Perform;

/// Make keys for --api_keys_file
#[derive(Debug, Parser)]
pub(crate) struct Keys {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make a key: it is shown once, with the entry for the file
    New(New),
}

#[derive(Debug, Parser)]
#[command(rename_all = "snake_case")]
struct New {
    /// Who is to hold it, as the log will say
    name: String,
    /// What its holder may do, with commas between them: infer, read, manage
    #[arg(long, value_name = "RIGHTS", default_value = "infer,read")]
    rights: String,
    /// The models that it is for, with commas between them; a * stands for any characters
    #[arg(long, value_name = "MODELS", default_value = "*")]
    models: String,
    /// When it ends, as in 2026-12-31T23:59:59Z
    #[arg(long, value_name = "TIME")]
    expires: Option<String>,
    /// Print the key and its entry as JSON
    #[arg(long)]
    json: bool,
}

impl Perform for Keys {
    fn perform(self) -> Result<ExitCode> {
        main(&self)?;
        Ok(ExitCode::SUCCESS)
    }
}

fn main(args: &Keys) -> Result<()> {
    let Command::New(new) = &args.command;
    let key = api::new_key();
    let entry = entry(new, &key)?;
    if new.json {
        say!("{:#}", json!({"key": key, "entry": entry}));
        return Ok(());
    }
    // The key alone on standard error: the entry may be appended to the file.
    eprintln!("The key, which is not shown again:\n\n  {key}\n\nThe entry for --api_keys_file:\n");
    say!("{entry}");
    Ok(())
}

/// The entry of a key, as text proto.
fn entry(new: &New, key: &str) -> Result<String> {
    ensure!(!new.name.is_empty(), "a key needs a name");
    let words = |text: &str| -> Vec<String> {
        text.split(',').map(|word| word.trim().to_owned()).collect()
    };
    let rights = words(&new.rights);
    rights.iter().try_for_each(|word| config::api_keys::right(word).map(drop))?;
    new.expires.iter().try_for_each(|time| config::api_keys::time(time).map(drop))?;
    let list = |words: &[String]| {
        let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
        format!("[{}]", words.join(", "))
    };
    let mut text = format!(
        "keys {{\n  name: {}\n  sha256: \"{}\"\n  rights: {}\n  models: {}\n",
        quoted(&new.name),
        api::Digest::of(key.as_bytes()),
        list(&rights),
        list(&words(&new.models)),
    );
    if let Some(time) = &new.expires {
        text.push_str(&format!("  expires: {}\n", quoted(time)));
    }
    text.push('}');
    Ok(text)
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}
