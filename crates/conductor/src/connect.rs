//! `conductor connect`: the client that goes with a claim, with the claim's credentials.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use conductor_claims::lifecycle::condition_of;
use conductor_claims::types::ResourceType;
use conductor_managers::Api;
use serde_json::Value;

use crate::manager::Cluster;
use crate::out::say;

/// Open the client that goes with a bound claim: psql, mariadb or curl with the claim's own credentials, a shell in a volume.
///
/// Credentials are read from the claim's Secret, as an application would; passwords go by the environment and never show in a list
/// of processes.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  conductor connect db\n  conductor connect relationaldatabaseclaim/db -n shop -- -c 'select version()'\n  conductor connect db --uri\n  conductor connect front -- -H 'Host: www.example'\n  conductor connect pvc/files -- -c 'df -h .'"
)]
pub struct Args {
    /// The claim: NAME, or KIND/NAME with the kind as kubectl takes it
    claim: String,
    /// Its namespace [default: the context's]
    #[arg(long, short)]
    namespace: Option<String>,
    /// Print the uri with the credentials, or the path of a volume, instead
    #[arg(long)]
    uri: bool,
    /// For the client
    #[arg(last = true, value_name = "ARGUMENT")]
    arguments: Vec<String>,
    #[command(flatten)]
    cluster: Cluster,
}

/// Becomes the client.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let (api, namespace) = args.cluster.api().await?;
    let namespace = args.namespace.as_deref().unwrap_or(&namespace);
    let claim = find(&api, &args.claim, namespace).await?;
    let name = format!("{} {namespace}/{}", text(&claim["kind"]), text(&claim["metadata"]["name"]));
    if claim["kind"] == "PersistentVolumeClaim" {
        let path = directory(&api, &claim).await.with_context(|| format!("{name} cannot be entered"))?;
        if args.uri {
            return say(&path);
        }
        let shell = std::env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into());
        let error = Command::new(&shell).args(&args.arguments).current_dir(&path).exec();
        return Err(error).with_context(|| format!("cannot run {} in {path}", shell.display()));
    }
    let Some(secret) = claim["status"]["binding"]["name"].as_str() else {
        let message = text(&claim["status"]["message"]);
        let why = if message.is_empty() { "it has no connection details yet" } else { message };
        bail!("{name} is {}: {why}", claim["status"]["phase"].as_str().unwrap_or("Pending"));
    };
    let secret =
        api.get("v1", "Secret", namespace, secret).await?.with_context(|| format!("{name} has lost its Secret"))?;
    let mut details = decoded(&secret);
    if args.uri {
        let uri = details.get("uri").context("its Secret has no uri")?;
        anyhow::ensure!(!uri.contains(char::is_control), "uri of its Secret has control characters: it is not shown");
        return say(uri);
    }
    // the client's own words say what fails, and not why
    if let Some(why) = unready(&claim) {
        eprintln!("{name} is not ready: {why}");
    }
    if details.get("uri").is_some_and(|uri| uri.starts_with("tcp://")) {
        let services = api.list_in("v1", "Service", namespace, "").await.unwrap_or_default();
        let behind =
            services.iter().find(|service| service["metadata"]["annotations"][CLAIM] == claim["metadata"]["name"]);
        if let Some(words) = forwarded(&mut details, behind, !args.arguments.is_empty()) {
            eprintln!("{name} takes connections at {words}");
        }
    }
    let known = details.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
    let mut command = client(&details).with_context(|| {
        format!("{name} has {known}: kubectl get secret {} -n {namespace} -o yaml", text(&secret["metadata"]["name"]))
    })?;
    command.args(&args.arguments);
    let program = command.get_program().to_string_lossy().into_owned();
    let error = command.exec();
    let package = match program.as_str() {
        "psql" => "postgresql-client",
        "mariadb" => "mariadb-client",
        other => other,
    };
    Err(error).with_context(|| format!("cannot run {program}: apt-get install {package}"))
}

/// The annotation by which a Service uses the claim of a balancer.
const CLAIM: &str = "network.conductor.io/claim";

/// Makes a request of a connection to a forwarded port where HTTP is behind it, or arguments are there for such a one; else what to say
/// of the bare connection.
fn forwarded(details: &mut BTreeMap<String, String>, behind: Option<&Value>, asks: bool) -> Option<String> {
    let place = details.get("uri")?.strip_prefix("tcp://")?.to_owned();
    let ports: Vec<&Value> =
        behind.into_iter().flat_map(|s| s["spec"]["ports"].as_array().into_iter().flatten()).collect();
    let scheme = ports.first().and_then(|port| scheme(port)).or(asks.then_some("http"));
    if let Some(scheme) = scheme {
        details.insert("uri".into(), format!("{scheme}://{place}/"));
        return None;
    }
    let plain = |text: &str| text.replace(char::is_control, " ");
    Some(match behind {
        None => format!("{}, and no Service is known to be behind it: annotate one with {CLAIM}", plain(&place)),
        Some(service) => format!(
            "{}, which lead to Service {}: what is typed is sent, and Ctrl-C ends it. Its own client connects there as well; if it \
             speaks HTTP, say so with arguments for curl: -- -i",
            plain(&place),
            plain(text(&service["metadata"]["name"]))
        ),
    })
}

/// The scheme of a port of a Service that is HTTP's by what it says, or by its number where it says nothing.
fn scheme(port: &Value) -> Option<&'static str> {
    let said = [&port["appProtocol"], &port["name"]].map(text).into_iter().find(|said| !said.is_empty());
    let is = |word: &str| said.is_some_and(|said| said == word || said.starts_with(&format!("{word}-")));
    match (said, port["port"].as_u64()) {
        _ if is("http") => Some("http"),
        _ if is("https") => Some("https"),
        (None, Some(80 | 8080)) => Some("http"),
        (None, Some(443 | 8443)) => Some("https"),
        _ => None,
    }
}

/// Why a claim cannot be used just now, if it says so.
fn unready(claim: &Value) -> Option<String> {
    let (ready, _, message) = condition_of(claim, "Ready")?;
    (!ready).then(|| message.replace(char::is_control, " "))
}

/// Where on this machine the files of a claim's volume are.
async fn directory(api: &Api, claim: &Value) -> anyhow::Result<String> {
    let volume = text(&claim["spec"]["volumeName"]);
    anyhow::ensure!(!volume.is_empty(), "it is {}: see conductor explain", text(&claim["status"]["phase"]));
    let volume = match api.get("v1", "PersistentVolume", "", volume).await {
        Err(failure) if failure.code == 403 => {
            bail!(
                "where its files are is not yours to see: use the claim in a Pod, or ask an administrator ({})",
                failure.message
            )
        }
        volume => volume?.context("its volume is gone")?,
    };
    let places = [&volume["spec"]["local"]["path"], &volume["spec"]["hostPath"]["path"]];
    let path = places.into_iter().find_map(Value::as_str).context("its volume is not a directory of a machine")?;
    let there = std::path::Path::new(path).is_dir();
    anyhow::ensure!(there, "{path} is no directory of this machine: connect on the one that has it, or make it");
    Ok(path.to_owned())
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The claim that is meant: of one kind, or of the one kind that has a claim of the name.
async fn find(api: &Api, word: &str, namespace: &str) -> anyhow::Result<Value> {
    if let Some((kind, name)) = word.split_once('/') {
        let (api_version, served) =
            api.kind_of(kind).await?.with_context(|| format!("the server has no kind {kind:?}"))?;
        let found = api.get(&api_version, &served.kind, namespace, name).await?;
        return found.with_context(|| format!("there is no {} {namespace}/{name}", served.kind));
    }
    let mut found = Vec::new();
    for kind in api.list("conductor.io/v1alpha1", "ResourceType", "").await? {
        let Ok(kind) = ResourceType::parse(&kind) else { continue };
        found.extend(api.get(&kind.api_version(), &kind.names.claim, namespace, word).await?);
    }
    found.extend(api.get("v1", "PersistentVolumeClaim", namespace, word).await?);
    match found.len() {
        1 => Ok(found.remove(0)),
        0 => bail!("there is no claim {word} in namespace {namespace}"),
        _ => {
            let kinds: Vec<&str> = found.iter().map(|c| text(&c["kind"])).collect();
            bail!("several claims are called {word}: say which, {}/{word}", kinds.join(&format!("/{word} or ")))
        }
    }
}

fn decoded(secret: &Value) -> BTreeMap<String, String> {
    let data = secret["data"].as_object().into_iter().flatten();
    let plain = |value: &Value| String::from_utf8(STANDARD.decode(text(value)).ok()?).ok();
    data.filter_map(|(key, value)| Some((key.clone(), plain(value)?))).collect()
}

/// The client for what a Secret describes. Whoever can write the Secret chooses the values, and with them no more than where to
/// connect: none is ever an option, a command or a file.
fn client(details: &BTreeMap<String, String>) -> anyhow::Result<Command> {
    for (key, value) in details.iter().filter(|(key, _)| *key != "password") {
        if value.starts_with('-') || value.contains(char::is_control) {
            bail!("{key} of its Secret begins with a dash or has control characters: it is not passed to a client");
        }
    }
    let get = |key: &str| details.get(key).map(String::as_str).unwrap_or_default();
    let mut command;
    match get("type") {
        "postgresql" | "postgres" => {
            command = Command::new("psql");
            // in arguments, a database may be a connection string with options of its own
            for (variable, key) in
                [("PGHOST", "host"), ("PGPORT", "port"), ("PGUSER", "username"), ("PGPASSWORD", "password")]
            {
                command.env(variable, get(key));
            }
            command.env("PGDATABASE", plain("database", get("database"))?);
        }
        "mysql" | "mariadb" => {
            command = Command::new("mariadb");
            command.arg("--protocol=tcp");
            for (option, key) in [("host", "host"), ("port", "port"), ("user", "username"), ("database", "database")] {
                command.arg(format!("--{option}={}", get(key)));
            }
            command.env("MYSQL_PWD", get("password"));
        }
        other => {
            let uri = match (get("uri"), get("host"), get("port")) {
                ("", host, _) if host.is_empty() || !["", "loadbalancer"].contains(&other) => {
                    bail!("no client is known for type {other:?}, and its Secret has no uri")
                }
                ("", host, "") => format!("http://{host}/"),
                ("", host, port) => format!("http://{host}:{port}/"),
                (uri, ..) => uri.to_owned(),
            };
            // a bare connection: what is typed is sent, what comes is shown
            let uri = match uri.split_once("://") {
                Some(("http" | "https", _)) => uri,
                Some(("tcp", place)) => format!("telnet://{place}"),
                _ => {
                    bail!("no client is known for what uri of its Secret names: --uri shows it, for one that you have")
                }
            };
            command = Command::new("curl");
            // no list, range or default file stands in for the one address
            command.args(["--silent", "--show-error", "--globoff", "--proto", "=http,https,telnet"]);
            command.args(["--connect-timeout", "10"]);
            command.args(["--url", &uri]);
        }
    }
    Ok(command)
}

/// A value that is a name and no connection string.
fn plain<'v>(key: &str, value: &'v str) -> anyhow::Result<&'v str> {
    anyhow::ensure!(
        !value.contains(['=', '/', ':', '?']),
        "{key} of its Secret is no name: it is not passed to a client"
    );
    Ok(value)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn details(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        let usual = [("host", "h"), ("port", "1"), ("username", "u"), ("password", "sesame"), ("database", "d")];
        usual.iter().chain(pairs).map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    #[test]
    fn each_type_has_its_client_and_no_password_in_its_arguments() {
        for (kind, expected) in [("postgresql", "psql"), ("mysql", "mariadb"), ("loadbalancer", "curl")] {
            let command = client(&details(&[("type", kind)])).expect("is known");
            assert_eq!(command.get_program().to_string_lossy(), expected);
            assert!(!command.get_args().any(|a| a.to_string_lossy().contains("sesame")), "{command:?}");
        }
        assert!(client(&BTreeMap::new()).is_err());
    }

    #[test]
    fn what_has_no_client_is_not_guessed_at() {
        for (kind, uri) in [("amqp", ""), ("s3", "s3://bucket"), ("loadbalancer", "udp://h:1")] {
            assert!(client(&details(&[("type", kind), ("uri", uri)])).is_err(), "{kind} {uri}");
        }
        assert!(client(&details(&[("type", "s3"), ("uri", "https://h/bucket")])).is_ok());
    }

    #[test]
    fn a_forwarded_port_is_asked_in_its_own_language() {
        let check = |port: Value, asks: bool, expected: &str, says: &str| {
            let mut details = details(&[("uri", "tcp://h:1")]);
            let service = json!({"metadata": {"name": "web"}, "spec": {"ports": [port]}});
            let said = forwarded(&mut details, Some(&service), asks).unwrap_or_default();
            assert_eq!(details["uri"], expected, "{port}");
            assert!(said.contains(says) && said.is_empty() == says.is_empty(), "{said}");
        };
        check(json!({"port": 5000, "name": "http"}), false, "http://h:1/", "");
        check(json!({"port": 5000, "name": "http-web"}), false, "http://h:1/", "");
        check(json!({"port": 5000, "appProtocol": "https"}), false, "https://h:1/", "");
        check(json!({"port": 80}), false, "http://h:1/", "");
        check(json!({"port": 80, "name": "http", "appProtocol": "sql"}), false, "tcp://h:1", "lead to Service web");
        check(json!({"port": 80, "name": "sql"}), false, "tcp://h:1", "lead to Service web");
        check(json!({"port": 5432}), false, "tcp://h:1", "what is typed is sent");
        check(json!({"port": 5432}), true, "http://h:1/", "");
        let said = forwarded(&mut details(&[("uri", "tcp://h:1")]), None, false);
        assert!(said.is_some_and(|said| said.contains("annotate one with network.conductor.io/claim")));
    }

    #[test]
    fn a_claim_that_is_not_ready_says_why() {
        let claim = |status: &str| {
            let ready = json!({"type": "Ready", "status": status, "reason": "R", "message": "its server ended"});
            json!({"status": {"conditions": [ready]}})
        };
        assert_eq!(unready(&claim("False")).as_deref(), Some("its server ended"));
        assert_eq!(unready(&claim("True")), None);
        assert_eq!(unready(&json!({})), None);
    }

    #[test]
    fn values_of_a_secret_are_neither_options_nor_files() {
        for kind in ["postgresql", "mysql", "loadbalancer"] {
            for key in ["host", "port", "username", "database", "uri"] {
                for value in ["--execute=\\! id", "-oProxy", "a\n\\! id", "\u{1b}[2J"] {
                    let refused = client(&details(&[("type", kind), (key, value)]));
                    assert!(refused.is_err(), "{kind} {key} {value:?}: {refused:?}");
                }
            }
        }
        for uri in ["file:///etc/shadow", "telnet://h:1", "scp://h/x", "dict://h:1/x", "h", "@/etc/shadow", "HTTP:x"] {
            assert!(client(&details(&[("type", "x"), ("uri", uri)])).is_err(), "{uri}");
        }
        for database in ["postgresql://evil/x?sslkey=/a", "host=evil sslmode=disable"] {
            assert!(client(&details(&[("type", "postgresql"), ("database", database)])).is_err(), "{database}");
        }
        // What is passed is one argument with its option, or no argument at all.
        let arguments = |kind: &str| {
            let command = client(&details(&[("type", kind), ("uri", "http://h/{a,b}")])).expect("is known");
            command.get_args().map(|a| a.to_string_lossy().into_owned()).collect::<Vec<_>>()
        };
        assert_eq!(arguments("mysql"), ["--protocol=tcp", "--host=h", "--port=1", "--user=u", "--database=d"]);
        assert!(arguments("postgresql").is_empty());
        assert_eq!(arguments("x").last().map(String::as_str), Some("http://h/{a,b}"));
    }
}
