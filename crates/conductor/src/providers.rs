//! The providers of this machine's infrastructure: which there are, and how they run.

use std::path::Path;

use conductor_local::{Home, Provider, install, run};
use conductor_managers::Api;
use conductor_managers::api::Failure;
use http::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;

/// Every provider. A new one is a line here.
pub fn all() -> Vec<Provider> {
    let all = [Ok(conductor_databases::provider()), conductor_volumes::provider(), conductor_balancers::provider()];
    let readable = |provider: Result<Provider, String>| {
        provider
            .inspect_err(|error| tracing::error!(error, "a provider does not run: what is built in cannot be read"))
            .ok()
    };
    all.into_iter().filter_map(readable).collect()
}

/// How long until what could not be installed is tried again.
const AGAIN: std::time::Duration = std::time::Duration::from_secs(5);

/// Says on a Provider that its examples were made: what an administrator removes then stays away.
const EXAMPLES: &str = "conductor.io/examples";

/// Starts providers, each with a client of its own and below its own directory; they stop when the set is dropped. What they run goes on.
pub fn start(
    providers: Vec<Provider>,
    admin: &Api,
    data_dir: &Path,
    client: impl Fn(&str) -> kube::Client,
) -> JoinSet<()> {
    let mut running = JoinSet::new();
    for provider in providers {
        let name = provider.name;
        let home = match Home::open(data_dir, name) {
            Ok(home) => home,
            Err(error) => {
                tracing::error!(%error, "provider {name} does not run: it has no directory");
                continue;
            }
        };
        if let Some(lack) = home.foreign() {
            tracing::error!("provider {name} does nothing: {lack}");
        }
        let left = conductor_local::stray::audit(name, home.path()).len();
        if left > 0 {
            tracing::warn!("provider {name} finds {left} left of data directories that were removed: conductor audit");
        }
        let client = client(name);
        let admin = admin.clone();
        running.spawn(async move {
            while let Err(failure) = define(&admin, &provider).await {
                tracing::error!(%failure, "provider {name} does not run: it could not be installed; will try again");
                tokio::time::sleep(AGAIN).await;
            }
            let examples = provider.examples.clone();
            let ((), ()) = tokio::join!(run(provider, client, home), async {
                if let Err(failure) = exemplify(&admin, name, &examples).await {
                    tracing::warn!(%failure, "the examples of provider {name} could not be made");
                }
            });
        });
    }
    running
}

async fn define(api: &Api, provider: &Provider) -> Result<(), Failure> {
    conductor_managers::install::apply_all(api, &install::objects(provider)).await
}

/// Makes the examples, once in the life of a data directory. Their kinds may be the managers' to define, which takes a moment.
async fn exemplify(api: &Api, provider: &str, examples: &[Value]) -> Result<(), Failure> {
    let own = api.get(conductor_local::API_VERSION, "Provider", "", provider).await?.unwrap_or_default();
    if own["metadata"]["annotations"][EXAMPLES].is_string() {
        return Ok(());
    }
    for example in examples {
        create(api, example).await?;
    }
    let path = format!("/apis/{}/providers/{}", conductor_local::API_VERSION, provider);
    let patch = json!({"metadata": {"annotations": {EXAMPLES: "made"}}});
    let merge = "application/merge-patch+json";
    api.call(Method::PATCH, &path, merge, patch.to_string().into_bytes()).await.map(drop)
}

/// Creates an object, unless there is one of its name.
async fn create(api: &Api, object: &Value) -> Result<(), Failure> {
    let mut target = conductor_claims::lifecycle::Target::of(object);
    target.name = String::new();
    for attempt in 0.. {
        let path = match api.path(&target).await {
            Ok(path) => path,
            // a type's definitions take a moment to be served
            Err(failure) if failure.code == 404 && attempt < 200 => {
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                continue;
            }
            Err(failure) => return Err(failure),
        };
        match api.call(Method::POST, &path, "application/json", object.to_string().into_bytes()).await {
            Err(failure) if failure.code == 404 && attempt < 200 => {
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
            Err(failure) if failure.code != 409 => return Err(failure),
            _ => break,
        }
    }
    Ok(())
}
