//! `cargo run --release -p conductor-managers --example bind [N] [databases]`: binding, measured on the embedded server.

use conductor_apiserver::{Options as ServerOptions, Server, User};
use conductor_managers::bench::{What, bind};
use conductor_managers::{Api, Managers, Options, install};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let claims: usize = arguments.first().map_or(Ok(5000), |n| n.parse())?;
    let what = if arguments.iter().any(|a| a == "databases") { What::Databases } else { What::Volumes };
    let data_dir = std::env::var_os("BENCH_DATA_DIR").map(Into::into);
    let server = Server::start(ServerOptions { data_dir, ..ServerOptions::default() }).await?;
    let client = || server.client(User::new("bench", ["system:masters"]));
    install::install(&Api::new(client())).await?;
    let _managers = Managers::start(client(), Options::default()).await?;
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    println!("alone:    {}", bind(what, 1, client).await?);
    println!("burst:    {}", bind(what, claims, client).await?);
    println!("alone:    {}", bind(what, 1, client).await?);
    Ok(())
}
