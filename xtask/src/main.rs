//! Everything a developer of Conductor runs.
use clap::{Parser, Subcommand};

/// Everything a developer of Conductor runs.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {}

fn main() -> anyhow::Result<()> {
    match Cli::parse().command {}
}
