//! Load on an API server, ours or any other, and the two compared.
//!
//! The load generator is built only for this, and in release: `cargo xtask bench` runs itself again with its feature on.
use std::path::PathBuf;

#[cfg(feature = "bench")]
mod bind;
#[cfg(feature = "bench")]
mod chart;
#[cfg(feature = "bench")]
mod compare;
#[cfg(feature = "bench")]
mod databases;
#[cfg(feature = "bench")]
mod definitions;
#[cfg(feature = "bench")]
mod flood;
#[cfg(feature = "bench")]
mod infrastructure;
#[cfg(feature = "bench")]
mod load;
#[cfg(feature = "bench")]
mod machine;
#[cfg(feature = "bench")]
mod objects;
#[cfg(feature = "bench")]
mod parts;
#[cfg(feature = "bench")]
mod report;
#[cfg(feature = "bench")]
mod subject;
#[cfg(feature = "bench")]
mod watchers;
// The tests' own client, without the rest of the testkit, which would build all of Conductor into xtask.
#[cfg(feature = "bench")]
#[path = "../../crates/testkit/src/wire.rs"]
#[allow(dead_code, reason = "the tests use more of it")]
mod wire;
#[cfg(feature = "bench")]
mod workloads;

/// What to measure.
#[derive(clap::Subcommand)]
pub enum Bench {
    /// Measure one API server: a new `conductor up`, or the one that a kubeconfig names
    Api(Api),
    /// Measure etcd + kube-apiserver and `conductor up` in turns, write docs/benchmarks.md
    Compare(Compare),
    /// Measure binding: N resources, then N claims by 32 clients; volumes and databases; and the cost of one decision
    Bind(Bind),
    /// Measure what is behind claims on this machine: databases, volumes, load balancers; write docs/benchmarks.md
    Infrastructure(Infrastructure),
    /// Measure single parts without a server: access, apply, CEL, decisions; write docs/benchmarks.md
    Parts(Parts),
}

/// Single parts.
#[derive(clap::Args)]
#[cfg_attr(not(feature = "bench"), allow(dead_code, reason = "only the load generator reads them"))]
pub struct Parts {
    /// Where to write the figures [default: docs/benchmarks.md]
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Binding.
#[derive(clap::Args)]
#[cfg_attr(not(feature = "bench"), allow(dead_code, reason = "only the load generator reads them"))]
pub struct Bind {
    /// How many claims at once
    #[arg(value_name = "N", default_value_t = 5000)]
    pub claims: usize,
    /// The server to measure; a `conductor up` of its own if not given
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The conductor to measure; one built in release if not given
    #[arg(long, value_name = "FILE", conflicts_with = "kubeconfig")]
    pub program: Option<PathBuf>,
    /// Measure our managers on a new etcd and kube-apiserver, without its own binder
    #[arg(long, conflicts_with = "kubeconfig")]
    pub on_kubernetes: bool,
    /// Measure the decisions, too: what one costs with 1,000 to 1,000,000 resources, and how much memory they take
    #[arg(long)]
    pub decisions: bool,
    /// Leave out databases
    #[arg(long)]
    volumes_only: bool,
}

/// What is behind claims.
#[derive(clap::Args)]
#[cfg_attr(not(feature = "bench"), allow(dead_code, reason = "only the load generator reads them"))]
pub struct Infrastructure {
    /// How many claims of each class are timed one after the other
    #[arg(long, value_name = "N", default_value_t = 9)]
    pub rounds: usize,
    /// How many PostgreSQL servers at once; of MariaDB's, a tenth
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub instances: usize,
    /// The conductor to measure; one built in release if not given
    #[arg(long, value_name = "FILE")]
    pub program: Option<PathBuf>,
    /// Where to write the table [default: docs/benchmarks.md]
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// What is measured of an API server, in this order.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
#[cfg_attr(not(feature = "bench"), allow(dead_code, reason = "only the load generator reads them"))]
pub enum Part {
    /// Create, get, patch, delete, with one client and with 32
    Verbs,
    /// Lists of 10,000, their memory, a flood of them beside small writes
    Lists,
    /// Many watchers
    Watchers,
    /// The verbs with custom resources
    Custom,
    /// Server-side apply
    Apply,
    /// Several writes in one, where they are offered
    Transactions,
    /// Many definitions, and large ones
    Definitions,
}

/// One server.
#[derive(clap::Args)]
#[cfg_attr(not(feature = "bench"), allow(dead_code, reason = "only the load generator reads them"))]
pub struct Api {
    /// The server to measure; a `conductor up` of its own, built in release, if not given
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// How often; of each figure the median is shown
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub rounds: usize,
    /// A tenth of the load: only shows that everything works
    #[arg(long)]
    pub quick: bool,
    /// The conductor to measure; one built in release if not given
    #[arg(long, value_name = "FILE", conflicts_with = "kubeconfig")]
    pub program: Option<PathBuf>,
    /// Only this part; may be repeated
    #[arg(long = "part", value_name = "PART")]
    pub parts: Vec<Part>,
    /// Print JSON instead of a table
    #[arg(long)]
    pub json: bool,
}

/// Two servers.
#[derive(clap::Args)]
#[cfg_attr(not(feature = "bench"), allow(dead_code, reason = "only the load generator reads them"))]
pub struct Compare {
    /// How often each is measured, in turns
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub rounds: usize,
    /// A tenth of the load: only shows that everything works
    #[arg(long)]
    pub quick: bool,
    /// In how many of the rounds the API is measured, too, which takes most of the time [default: in all]
    #[arg(long, value_name = "N", conflicts_with = "bind_only")]
    pub api_rounds: Option<usize>,
    /// Only binding; printed, and written only where --output says
    #[arg(long)]
    pub bind_only: bool,
    /// Where to write the table and the chart [default: docs/benchmarks.md, with benchmarks.svg beside it]
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Measures.
#[cfg(feature = "bench")]
pub fn run(bench: &Bench) -> anyhow::Result<()> {
    match bench {
        Bench::Api(options) => compare::one(options),
        Bench::Compare(options) => compare::both(options),
        Bench::Bind(options) => bind::run(options),
        Bench::Infrastructure(options) => infrastructure::run(options),
        Bench::Parts(options) => parts::run(options),
    }
}

/// Runs this command again, from an xtask that has the load generator in it.
#[cfg(not(feature = "bench"))]
pub fn run(_: &Bench) -> anyhow::Result<()> {
    let status = crate::repository::cargo()
        .args(["run", "--quiet", "--release", "--package", "xtask", "--features", "bench", "--"])
        .args(std::env::args_os().skip(1))
        .status()?;
    anyhow::ensure!(status.success(), "the benchmark failed: {status}");
    Ok(())
}
