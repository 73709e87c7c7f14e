//! The admission that every server has, and the writes that belong to others.

use std::collections::BTreeSet;

use machinery::status::Status;
use serde_json::{Value, json};
use store::{Expect, Op};

use crate::admission::{Admission, Attributes, BoxFuture, Operation};
use crate::context::Context;
use crate::plan::View;

/// The built-in admission, in order.
pub fn defaults() -> Vec<Box<dyn Admission>> {
    vec![Box::new(InUseProtection), Box::new(ImmortalNamespaces)]
}

/// Volumes and claims stay while they are in use: they get a finalizer that a controller takes off.
struct InUseProtection;

impl Admission for InUseProtection {
    fn name(&self) -> &'static str {
        "StorageObjectInUseProtection"
    }

    fn mutate<'a>(&'a self, attributes: &'a mut Attributes<'_>) -> BoxFuture<'a, Result<(), Status>> {
        if attributes.operation == Operation::Create
            && attributes.subresource.is_empty()
            && !attributes.resource.is_custom()
        {
            let (group, kind) = attributes.resource.gk();
            let wanted = kinds::strategy::finalizers_on_create(group, kind);
            if !wanted.is_empty() {
                let meta = crate::write::meta_mut(&mut attributes.object);
                let finalizers = meta.entry("finalizers").or_insert_with(|| json!([]));
                if let Some(list) = finalizers.as_array_mut() {
                    for finalizer in wanted {
                        if !list.iter().any(|own| own == finalizer) {
                            list.push((*finalizer).into());
                        }
                    }
                }
            }
        }
        Box::pin(std::future::ready(Ok(())))
    }
}

/// The namespaces that everything relies on cannot be deleted.
struct ImmortalNamespaces;

impl Admission for ImmortalNamespaces {
    fn name(&self) -> &'static str {
        "NamespaceLifecycle"
    }

    fn validate<'a>(&'a self, attributes: &'a mut Attributes<'_>) -> BoxFuture<'a, Result<(), Status>> {
        let immortal = attributes.operation == Operation::Delete
            && attributes.resource.gk() == ("", "Namespace")
            && matches!(attributes.name, "default" | "kube-system" | "kube-public");
        Box::pin(std::future::ready(if immortal {
            Err(Status::forbidden("", "namespaces", attributes.name, "this namespace may not be deleted"))
        } else {
            Ok(())
        }))
    }
}

/// What services have allocated, one key each, so that no two commits can allocate the same.
const ADDRESSES: &str = "allocations/addresses";
const PORTS: &str = "allocations/nodeports";

/// Writes that belong to a write: addresses and ports that a Service takes or gives back.
pub fn side_writes(cx: &Context, _view: &View<'_>, old: &Value, new: &Value, ops: &mut Vec<Op>) -> Result<(), Status> {
    if cx.resource.gk() != ("", "Service") {
        return Ok(());
    }
    for (table, held) in [(ADDRESSES, addresses as fn(&Value) -> BTreeSet<String>), (PORTS, ports)] {
        let (before, after) = (held(old), held(new));
        for key in after.difference(&before) {
            ops.push(Op::put(table, key.as_str(), Vec::from(cx.info.name.as_bytes()), Expect::Absent));
        }
        for key in before.difference(&after) {
            ops.push(Op::delete(table, key.as_str(), Expect::Any));
        }
    }
    Ok(())
}

fn addresses(service: &Value) -> BTreeSet<String> {
    let list = service["spec"]["clusterIPs"].as_array().into_iter().flatten().filter_map(Value::as_str);
    list.filter(|ip| !ip.is_empty() && *ip != "None").map(str::to_owned).collect()
}

fn ports(service: &Value) -> BTreeSet<String> {
    let list = service["spec"]["ports"].as_array().into_iter().flatten();
    let mut ports: BTreeSet<String> = list
        .filter_map(|port| {
            let number = port["nodePort"].as_i64().filter(|number| *number != 0)?;
            Some(format!("{}/{number}", port["protocol"].as_str().unwrap_or("TCP")))
        })
        .collect();
    if let Some(number) = service["spec"]["healthCheckNodePort"].as_i64().filter(|number| *number != 0) {
        ports.insert(format!("TCP/{number}"));
    }
    ports
}
