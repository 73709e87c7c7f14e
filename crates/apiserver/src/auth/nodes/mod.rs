//! What nodes may do: what they need for the Pods that are on them, and nothing of others. As in Kubernetes this stands beside
//! the roles, and admission (`plugins/nodes.rs`) keeps to it what only the object tells.

pub mod graph;

use machinery::selector::FieldSelector;
use serde_json::Value;
use store::Store;

use self::graph::{Graph, Used};
use crate::auth::authz::{Authorizer, Decision};
use crate::auth::followed::Followed;
use crate::auth::rbac::rule::Rule;
use crate::auth::rbac::{Rbac, bootstrap};
use crate::request::RequestInfo;
use crate::user::{MASTERS, User};
use std::sync::Arc;

const PREFIX: &str = "system:node:";
const GROUP: &str = "system:nodes";
const LEASES: &str = "kube-node-lease";

/// The name of the node that a user is.
pub fn node_of(user: &User) -> Option<&str> {
    user.name.strip_prefix(PREFIX).filter(|_| user.in_group(GROUP))
}

/// Nodes by what is theirs, everybody by their roles.
pub struct Nodes {
    rbac: Arc<Rbac>,
    graph: Followed<Graph>,
    rules: Vec<Rule>,
}

type Verdict = Result<(), String>;

impl Nodes {
    /// Decides by what is in `store`, and beside that as `rbac` does.
    pub fn new(store: Store, rbac: Arc<Rbac>) -> Nodes {
        Nodes { rbac, graph: Followed::new(store), rules: bootstrap::rules_of("system:node") }
    }

    fn judge(&self, node: &str, user: &User, info: &RequestInfo) -> Verdict {
        if node.is_empty() {
            return Err(format!("unknown node for user {:?}", user.name));
        }
        let (verb, part, name) = (&*info.verb, info.subresource.as_str(), info.name.as_str());
        let unrelated = || format!("no relationship found between node '{node}' and this object");
        let related = |found: bool| if found { Ok(()) } else { Err(unrelated()) };
        let named = |found: &dyn Fn(&Graph) -> bool| match name {
            "" => Err("No Object name found".to_owned()),
            _ => related(found(&self.graph.current())),
        };
        let uses = |what: Used| named(&|graph| graph.uses(node, what, &info.namespace, name));
        let is = |verbs: &[&str]| verbs.contains(&verb);
        let own = |verbs: &str, what: &str| match () {
            () if !is(&["get", "create", "update", "patch", "delete"]) => Err(format!("can only {verbs}")),
            () if verb != "create" && name != node => {
                Err(format!("can only access {what} with the same name as the requesting node"))
            }
            () => Ok(()),
        };
        let read_used = |what: Used| match () {
            () if !is(&["get", "list", "watch"]) => Err("can only read resources of this type".into()),
            () if !part.is_empty() => Err("cannot read subresource".into()),
            () if info.namespace.is_empty() => Err("can only read namespaced object of this type".into()),
            () => uses(what),
        };
        let get = |found: &dyn Fn(&Graph) -> bool| match () {
            () if verb != "get" => Err("can only get individual resources of this type".into()),
            () if !part.is_empty() => Err("cannot get subresource".into()),
            () => named(found),
        };
        if info.is_resource {
            match (info.group.as_str(), info.resource.as_str()) {
                ("", "secrets") => return read_used(Used::Secret),
                ("", "configmaps") => return read_used(Used::ConfigMap),
                ("", "persistentvolumeclaims") if part == "status" => {
                    return match is(&["update", "patch"]) {
                        true => uses(Used::Claim),
                        false => Err("can only get/update/patch this type".into()),
                    };
                }
                ("", "persistentvolumeclaims") => {
                    return get(&|graph| graph.uses(node, Used::Claim, &info.namespace, name));
                }
                ("", "persistentvolumes") => return get(&|graph| graph.has_volume(node, name)),
                ("resource.k8s.io", "resourceclaims") => {
                    return get(&|graph| graph.uses(node, Used::Devices, &info.namespace, name));
                }
                ("storage.k8s.io", "volumeattachments") => return get(&|graph| graph.has_attachment(node, name)),
                ("", "serviceaccounts") if verb == "get" && part.is_empty() => return read_used(Used::Account),
                ("", "serviceaccounts") => {
                    return match () {
                        () if verb != "create" || name.is_empty() => {
                            Err("can only create tokens for individual service accounts".into())
                        }
                        () if part != "token" => Err("can only create token subresource of serviceaccount".into()),
                        () => uses(Used::Account),
                    };
                }
                ("coordination.k8s.io", "leases") => {
                    let what = "get, create, update, patch, or delete a node lease";
                    let everywhere = is(&["get", "create", "update", "patch", "delete"]) && info.namespace != LEASES;
                    return match everywhere {
                        true => Err(format!("can only access leases in the {LEASES:?} system namespace")),
                        false => own(what, "node lease"),
                    };
                }
                ("storage.k8s.io", "csinodes") => {
                    let what = "get, create, update, patch, or delete a CSINode";
                    let possible = is(&["get", "create", "update", "patch", "delete"]);
                    return match possible && !part.is_empty() {
                        true => Err("cannot authorize CSINode subresources".into()),
                        false => own(what, "CSINode"),
                    };
                }
                ("resource.k8s.io", "resourceslices") => {
                    return match verb {
                        _ if !part.is_empty() => Err("cannot authorize ResourceSlice subresources".into()),
                        "create" => Ok(()),
                        "get" | "update" | "patch" | "delete" => named(&|graph| graph.has_slice(node, name)),
                        "watch" | "list" | "deletecollection" => match selects(info, "spec.nodeName", node) {
                            true => Ok(()),
                            false => Err("can only list/watch/deletecollection resourceslices with nodeName field \
                                          selector"
                                .into()),
                        },
                        _ => {
                            Err("only the following verbs are allowed for a ResourceSlice: get, watch, list, create, \
                                  update, patch, delete, deletecollection"
                                .into())
                        }
                    };
                }
                ("", "nodes") => {
                    return match (part, verb) {
                        ("", "create" | "update" | "patch") | ("status", "update" | "patch") => Ok(()),
                        ("", "get" | "list" | "watch") if name == node => Ok(()),
                        ("", "get" | "list" | "watch") if name.is_empty() => {
                            Err(format!("node '{node}' cannot read all nodes, only its own Node object"))
                        }
                        ("", "get" | "list" | "watch") => {
                            Err(format!("node '{node}' cannot read '{name}', only its own Node object"))
                        }
                        _ => Err(String::new()),
                    };
                }
                ("", "pods") => {
                    return match (part, verb) {
                        ("", "get") => get(&|graph| graph.has_pod(node, &info.namespace, name)),
                        ("", "list" | "watch") if selects(info, "spec.nodeName", node) => Ok(()),
                        ("", "list" | "watch") if !name.is_empty() => {
                            named(&|graph| graph.has_pod(node, &info.namespace, name))
                        }
                        ("", "list" | "watch") => {
                            Err("can only list/watch pods with spec.nodeName field selector".into())
                        }
                        ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create") => Ok(()),
                        _ => Err(String::new()),
                    };
                }
                ("certificates.k8s.io", "podcertificaterequests") => return Err(String::new()),
                _ => {}
            }
        }
        // All else is the same for all nodes.
        match self.rules.iter().any(|rule| rule.allows(info)) {
            true => Ok(()),
            false => Err(String::new()),
        }
    }
}

/// Whether a list or watch asks for one value of a field only.
fn selects(info: &RequestInfo, field: &str, value: &str) -> bool {
    FieldSelector::parse(&info.field_selector).is_ok_and(|selector| selector.exact(field) == Some(value))
}

impl Authorizer for Nodes {
    fn authorize(&self, user: &User, info: &RequestInfo) -> Decision {
        let Some(node) = node_of(user).filter(|_| !user.in_group(MASTERS)) else {
            return self.rbac.authorize(user, info);
        };
        let Err(reason) = self.judge(node, user, info) else { return Decision::Allow(String::new()) };
        match self.rbac.authorize(user, info) {
            Decision::NoOpinion(also) if reason.is_empty() => Decision::NoOpinion(also),
            Decision::NoOpinion(also) if also.is_empty() => Decision::NoOpinion(reason),
            Decision::NoOpinion(also) => Decision::NoOpinion(format!("{reason}\n{also}")),
            allowed => allowed,
        }
    }

    fn rules(&self, user: &User, namespace: &str) -> Value {
        let mut status = self.rbac.rules(user, namespace);
        if node_of(user).is_some() {
            status["incomplete"] = true.into();
            let why = "node authorizer does not support user rule resolution";
            status["evaluationError"] = match status["evaluationError"].as_str() {
                Some(also) => format!("[{why}, {also}]").into(),
                None => why.into(),
            };
        }
        status
    }
}
