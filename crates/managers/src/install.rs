//! What an API server needs before managers can work: our definitions, the built-in types, the system namespace.

use std::collections::BTreeSet;

use conductor_claims::lifecycle::SYSTEM_NAMESPACE;
use conductor_claims::types::{
    ResourceType, builtin_implementations, builtin_types, crds, manager_crd, resource_type_crd,
};
use futures::TryStreamExt;
use futures::stream::FuturesUnordered;
use serde_json::{Value, json};

use crate::api::{Api, Failure};

/// The definitions of our own kinds.
pub fn definitions() -> Vec<Value> {
    vec![resource_type_crd(), manager_crd(), volume_template_crd(), provider_crd()]
}

/// The three definitions of each built-in type, for those who want to see or apply them by hand.
pub fn type_definitions() -> Result<Vec<Value>, String> {
    let mut all = Vec::new();
    for object in builtin_types()? {
        let kind = ResourceType::parse(&object)
            .map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))?;
        all.extend(crds(&kind));
    }
    Ok(all)
}

/// Everything, in an order in which it can be applied.
pub fn objects() -> Result<Vec<Value>, String> {
    let mut all = vec![namespace()];
    all.extend(rights()?);
    all.extend(crate::parties::roles()?);
    all.extend(crate::parties::type_roles()?);
    all.extend(crate::parties::policies()?);
    all.extend(definitions());
    all.extend(builtin_implementations()?);
    all.extend(builtin_types()?);
    all.iter_mut().for_each(spell_out);
    Ok(all)
}

/// Which requests a policy is about is one value: whoever applies it again, without what the server adds to it, would be told that the
/// managers see that otherwise.
fn spell_out(object: &mut Value) {
    let Some(constraints) = object.pointer_mut("/spec/matchConstraints").filter(|own| own.is_object()) else { return };
    for (name, value) in
        [("matchPolicy", json!("Equivalent")), ("namespaceSelector", json!({})), ("objectSelector", json!({}))]
    {
        if constraints[name].is_null() {
            constraints[name] = value;
        }
    }
    for rule in constraints["resourceRules"].as_array_mut().into_iter().flatten() {
        if rule["scope"].is_null() {
            rule["scope"] = json!("*");
        }
    }
}

/// The name of the managers' service account and of their ClusterRole's binding.
pub const ACCOUNT: &str = "managers";
/// The name of the service account with whose rights implementations are read and written. The managers act as it.
pub const PROVISIONER: &str = "provisioner";

/// What the managers may do, to which administrators add for their types; and apart from it what templates may ask for, to which
/// providers add their kinds. Whoever writes a template need not have the managers' rights, and does not get them.
fn rights() -> Result<Vec<Value>, String> {
    let look = ["get", "list", "watch"];
    let work = ["get", "list", "watch", "create", "update", "patch", "delete"];
    let rule = |groups: &[&str], resources: &[&str], verbs: &[&str]| json!({"apiGroups": groups, "resources": resources, "verbs": verbs});
    let mut groups: Vec<String> = Vec::new();
    for object in builtin_types()? {
        let group = object["spec"]["group"].as_str().unwrap_or_default().to_owned();
        if !groups.contains(&group) {
            groups.push(group);
        }
    }
    let groups: Vec<&str> = groups.iter().map(String::as_str).collect();
    let rules = [
        rule(
            &[""],
            &[
                "persistentvolumes",
                "persistentvolumes/status",
                "persistentvolumeclaims",
                "persistentvolumeclaims/status",
                "secrets",
                "configmaps",
                "services",
            ],
            &work,
        ),
        rule(&[""], &["pods", "nodes", "namespaces"], &look),
        // the gate of those that wait for their claims
        rule(&[""], &["pods"], &["patch"]),
        rule(&["", "events.k8s.io"], &["events"], &["create", "patch"]),
        rule(&["storage.k8s.io"], &["storageclasses"], &look),
        rule(&["networking.k8s.io"], &["ingresses"], &look),
        rule(&["discovery.k8s.io"], &["endpointslices", "endpointslices/restricted"], &work),
        rule(&["coordination.k8s.io"], &["leases"], &["get", "create", "update"]),
        rule(&["apiextensions.k8s.io"], &["customresourcedefinitions"], &work),
        rule(&["conductor.io"], &["*"], &work),
        // What comes with a type: roles that give no more than this one has, and the policies that guard its claims.
        rule(&["rbac.authorization.k8s.io"], &["clusterroles"], &work),
        rule(
            &["admissionregistration.k8s.io"],
            &[
                "validatingwebhookconfigurations",
                "validatingadmissionpolicies",
                "validatingadmissionpolicybindings",
                "mutatingadmissionpolicies",
                "mutatingadmissionpolicybindings",
            ],
            &work,
        ),
        rule(&["storage.k8s.io"], &["storageclasses"], &["use"]),
        rule(&["authorization.k8s.io"], &["subjectaccessreviews"], &["create"]),
        rule(&["transactions.conductor.io"], &["transactions"], &["create"]),
        rule(&groups, &["*"], &[&work[..], &["use", "deletecollection"]].concat()),
    ];
    let rbac = "rbac.authorization.k8s.io";
    let version = format!("{rbac}/v1");
    let aggregated = |name: &str| {
        let label = format!("conductor.io/aggregate-to-{name}");
        json!({
            "apiVersion": version, "kind": "ClusterRole", "metadata": {"name": format!("conductor:{name}")},
            "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {label: "true"}}]},
        })
    };
    let base = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "conductor:managers-base", "labels": {"conductor.io/aggregate-to-managers": "true"}},
        "rules": rules,
    });
    let provider = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "conductor:provisioner-aws", "labels": {"conductor.io/aggregate-to-provisioner": "true"}},
        "rules": [rule(&["database.aws.conductor.io"], &["*"], &work)],
    });
    let account = |name: &str| json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": SYSTEM_NAMESPACE}});
    let subject = |name: &str| json!([{"kind": "ServiceAccount", "name": name, "namespace": SYSTEM_NAMESPACE}]);
    let binding = |name: &str| {
        let role = format!("conductor:{name}");
        json!({
            "apiVersion": version, "kind": "ClusterRoleBinding", "metadata": {"name": role},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": role},
            "subjects": subject(name),
        })
    };
    let act = format!("conductor:act-as-{PROVISIONER}");
    let within = json!({"name": act, "namespace": SYSTEM_NAMESPACE});
    let acting = json!({
        "apiVersion": version, "kind": "Role", "metadata": within,
        "rules": [{"apiGroups": [""], "resources": ["serviceaccounts"], "resourceNames": [PROVISIONER], "verbs": ["impersonate"]}],
    });
    let act = json!({
        "apiVersion": version, "kind": "RoleBinding", "metadata": within,
        "roleRef": {"apiGroup": rbac, "kind": "Role", "name": act},
        "subjects": subject(ACCOUNT),
    });
    let mut all = vec![base, provider, acting, act];
    for name in [ACCOUNT, PROVISIONER] {
        all.extend([account(name), aggregated(name), binding(name)]);
    }
    Ok(all)
}

fn namespace() -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM_NAMESPACE}})
}

/// The definition of what a StorageClass of ours names in `parameters.template`.
pub fn volume_template_crd() -> Value {
    let free = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let schema = json!({
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": {
                "type": "object",
                "required": ["template"],
                "properties": {
                    "template": free,
                    "volume": free,
                    "volumeModes": {
                        "type": "array", "maxItems": 2, "x-kubernetes-list-type": "set",
                        "items": {"type": "string", "enum": ["Filesystem", "Block"]},
                        "description": "The modes of the volumes it makes; without it, Filesystem.",
                    },
                    "readyWhen": {"type": "string", "maxLength": 4096},
                },
            },
        },
    });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "volumetemplates.conductor.io", "labels": {"app.kubernetes.io/managed-by": "conductor"}},
        "spec": {
            "group": "conductor.io",
            "scope": "Cluster",
            "names": {
                "kind": "VolumeTemplate", "listKind": "VolumeTemplateList", "plural": "volumetemplates",
                "singular": "volumetemplate", "categories": ["conductor"],
            },
            "versions": [{
                "name": "v1alpha1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": schema},
                "additionalPrinterColumns": [
                    {"name": "Template", "type": "string", "jsonPath": ".spec.template.kind"},
                    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
                ],
            }],
        },
    })
}

/// The definition of what a provider says about itself: which of its kinds its machine can make, and what it found in an audit.
pub fn provider_crd() -> Value {
    let text = json!({"type": "string"});
    let kinds = json!({
        "type": "array",
        "items": {
            "type": "object",
            "properties": {
                "apiVersion": text, "kind": text, "available": {"type": "boolean"}, "message": text,
                // by the field of a spec that asks for it
                "most": {"type": "object", "additionalProperties": text},
                // for those only whose spec has the field, or whose field has the value
                "lacks": {
                    "type": "array",
                    "items": {"type": "object", "properties": {"field": text, "value": text, "message": text}},
                },
            },
        },
    });
    let findings = json!({
        "type": "array",
        "items": {"type": "object", "properties": {"object": text, "invariant": text, "message": text}},
    });
    let number = json!({"type": "integer", "format": "int64"});
    let schema = json!({
        "type": "object",
        "properties": {
            "apiVersion": text,
            "kind": text,
            "metadata": {"type": "object"},
            "spec": {"type": "object", "properties": {"audit": number}},
            "status": {
                "type": "object",
                "properties": {
                    "kinds": kinds, "provides": text, "lacks": text, "partlyLacks": text,
                    "audited": number, "auditedAt": text, "findings": findings,
                },
            },
        },
    });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "providers.conductor.io", "labels": {"app.kubernetes.io/managed-by": "conductor"}},
        "spec": {
            "group": "conductor.io",
            "scope": "Cluster",
            "names": {
                "kind": "Provider", "listKind": "ProviderList", "plural": "providers", "singular": "provider",
                "categories": ["conductor"],
            },
            "versions": [{
                "name": "v1alpha1", "served": true, "storage": true,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": schema},
                "additionalPrinterColumns": [
                    {"name": "Kinds", "type": "string", "jsonPath": ".status.provides"},
                    {"name": "Lacks", "type": "string", "jsonPath": ".status.lacks"},
                    {"name": "Partly lacks", "type": "string", "jsonPath": ".status.partlyLacks"},
                    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
                ],
            }],
        },
    })
}

/// Whether the definitions of all built-in types are there, from an earlier start.
pub async fn is_there(api: &Api) -> bool {
    let Ok(found) = api.list("apiextensions.k8s.io/v1", "CustomResourceDefinition", "").await else { return false };
    let found: BTreeSet<&str> = found.iter().filter_map(|crd| crd["metadata"]["name"].as_str()).collect();
    type_definitions().is_ok_and(|all| {
        all.iter().all(|crd| crd["metadata"]["name"].as_str().is_some_and(|name| found.contains(name)))
    })
}

/// Applies everything and waits until the definitions are served.
pub async fn install(api: &Api) -> Result<(), Failure> {
    let wrong = |message: String| Failure { code: 500, reason: "BuiltIn".into(), message };
    apply_all(api, &objects().map_err(wrong)?).await
}

/// How many objects are applied at once.
const AT_ONCE: usize = 16;

/// Applies objects: namespaces first, the rest at once; one whose kind was just defined waits until it is served. At the end all
/// that is defined is served.
pub async fn apply_all(api: &Api, objects: &[Value]) -> Result<(), Failure> {
    let (spaces, rest): (Vec<&Value>, Vec<&Value>) = objects.iter().partition(|object| object["kind"] == "Namespace");
    for space in spaces {
        apply(api, space).await?;
    }
    let mut running = FuturesUnordered::new();
    for object in rest {
        if running.len() == AT_ONCE {
            running.try_next().await?;
        }
        running.push(apply(api, object));
    }
    while running.try_next().await?.is_some() {}
    for definition in objects.iter().filter(|object| object["kind"] == "CustomResourceDefinition") {
        let spec = &definition["spec"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        for version in spec["versions"].as_array().into_iter().flatten().filter(|version| version["served"] == true) {
            let version = format!("{}/{}", text(&spec["group"]), text(&version["name"]));
            api.until_served(&version, &text(&spec["names"]["kind"])).await?;
        }
    }
    Ok(())
}

/// Applies a type, and leaves what an administrator has made of it: only what is missing is added. One that cannot be brought up to date
/// goes on as it is, and keeps nobody from working.
async fn apply_type(api: &Api, object: &Value) -> Result<Value, Failure> {
    let refused = match api.apply_with(object, false).await {
        Err(failure) if failure.code == 409 || failure.is_refusal() => failure,
        other => return other,
    };
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let kind = object["kind"].as_str().unwrap_or_default();
    let found = api.get(object["apiVersion"].as_str().unwrap_or_default(), kind, "", name).await?;
    let Some(found) = found else { return Err(refused) };
    let mut kept = object.clone();
    keep(&mut kept["spec"], &found["spec"]);
    match api.apply(&kept).await {
        Err(failure) if failure.is_refusal() => {
            tracing::warn!(%failure, "the built-in {kind} {name} stays as it is: correct it, or delete what stands in the way");
            Ok(found)
        }
        other => other,
    }
}

/// Puts what is there in the place of what was wanted; what is missing stays wanted.
fn keep(wanted: &mut Value, there: &Value) {
    match (wanted, there) {
        (_, Value::Null) => {}
        (Value::Object(wanted), Value::Object(there)) => {
            for (key, value) in there {
                keep(wanted.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (wanted, there) => *wanted = there.clone(),
    }
}

async fn apply(api: &Api, object: &Value) -> Result<(), Failure> {
    let own = object["kind"] == "ResourceType";
    // a definition that was just made takes a moment to be served
    for _ in 0..1000 {
        let applied = if own { apply_type(api, object).await } else { api.apply(object).await };
        match applied {
            Err(failure) if failure.code == 404 => {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
                api.look_again(object["apiVersion"].as_str().unwrap_or_default());
            }
            other => return other.map(drop),
        }
    }
    api.apply(object).await.map(drop)
}
