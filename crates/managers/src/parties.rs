//! The three parties: who administers infrastructure, who administers the cluster, who uses it. As roles and policies, which are
//! the same on every API server.

use conductor_claims::lifecycle::SYSTEM_NAMESPACE;
use conductor_claims::types::{
    Guarded, RETIRED, ResourceType, TYPE, access, builtin_implementations, builtin_types, guards, role, rule,
};
use serde_json::{Value, json};

use crate::consumers::CLAIMS;
use crate::gates::GATE;

/// Infrastructure admins: implementations and credentials, in the system namespace.
pub const INFRASTRUCTURE_ADMIN: &str = "conductor:infrastructure-admin";
/// What infrastructure admins see outside of it.
pub const INFRASTRUCTURE_VIEW: &str = "conductor:infrastructure-view";
/// Cluster admins: types, classes, managers, resources.
pub const CLUSTER_ADMIN: &str = "conductor:cluster-admin";
/// Users: claims and what uses them, in their namespace.
pub const USER: &str = "conductor:user";
/// What everybody sees: types, classes, how much of them is free.
const CLASSES: &str = "conductor:classes";

const RBAC: &str = "rbac.authorization.k8s.io/v1";
const POLICY: &str = "admissionregistration.k8s.io/v1";
const LOOK: [&str; 3] = ["get", "list", "watch"];
const WORK: [&str; 8] = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"];

/// The roles, and who has them from the start.
pub fn roles() -> Result<Vec<Value>, String> {
    let mut implementations: Vec<(String, String)> = Vec::new();
    for crd in builtin_implementations()? {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        if crd["kind"] == "CustomResourceDefinition" {
            implementations.push((text(&crd["spec"]["group"]), text(&crd["spec"]["names"]["plural"])));
        }
    }
    let mut groups: Vec<&str> = implementations.iter().map(|(group, _)| group.as_str()).collect();
    groups.sort_unstable();
    groups.dedup();
    let gathers = |name: &str, labels: &[&str]| {
        let selectors: Vec<Value> = labels.iter().map(|label| json!({"matchLabels": {*label: "true"}})).collect();
        let mut role = role(name, &[], &[]);
        role["aggregationRule"] = json!({"clusterRoleSelectors": selectors});
        // What is gathered belongs to who gathers it.
        role.as_object_mut().map(|fields| fields.remove("rules"));
        role
    };
    let mut infrastructure = vec![
        rule(&[""], &["secrets", "configmaps", "services"], &WORK),
        rule(&["", "events.k8s.io"], &["events"], &LOOK),
    ];
    if !groups.is_empty() {
        infrastructure.push(rule(&groups, &["*"], &WORK));
    }
    let everybody = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:authenticated"});
    Ok(vec![
        // providers add their kinds
        role(
            "conductor:infrastructure-admin-base",
            &["conductor.io/aggregate-to-infrastructure-admin"],
            &infrastructure,
        ),
        gathers(INFRASTRUCTURE_ADMIN, &["conductor.io/aggregate-to-infrastructure-admin"]),
        gathers(INFRASTRUCTURE_VIEW, &["conductor.io/aggregate-to-infrastructure-view"]),
        role(
            "conductor:infrastructure-view-base",
            &["conductor.io/aggregate-to-infrastructure-view"],
            &[
                rule(&["conductor.io"], &["*"], &LOOK),
                rule(&["conductor.io"], &["providers"], &["update", "patch"]),
                rule(&["conductor.io"], &["infrastructures"], &["use"]),
                rule(&[""], &["persistentvolumes", "nodes"], &LOOK),
                rule(&["storage.k8s.io"], &["storageclasses"], &LOOK),
            ],
        ),
        role(
            "conductor:cluster-admin-base",
            &["conductor.io/aggregate-to-cluster-admin"],
            &[
                rule(&["conductor.io"], &["resourcetypes", "managers", "volumetemplates"], &WORK),
                rule(&["conductor.io"], &["*"], &LOOK),
                rule(&["conductor.io"], &["infrastructures"], &["use"]),
                rule(&["storage.k8s.io"], &["storageclasses"], &WORK),
                rule(&["storage.k8s.io"], &["storageclasses"], &["use"]),
                rule(&[""], &["persistentvolumes", "resourcequotas", "limitranges", "namespaces"], &WORK),
                rule(&[""], &["persistentvolumeclaims", "events", "nodes", "pods", "services"], &LOOK),
            ],
        ),
        gathers(CLUSTER_ADMIN, &["conductor.io/aggregate-to-cluster-admin"]),
        role(
            "conductor:classes-base",
            &["conductor.io/aggregate-to-classes"],
            &[
                rule(&["conductor.io"], &["resourcetypes", "managers"], &LOOK),
                rule(&["storage.k8s.io"], &["storageclasses"], &LOOK),
            ],
        ),
        gathers(CLASSES, &["conductor.io/aggregate-to-classes"]),
        gathers(USER, &["rbac.authorization.k8s.io/aggregate-to-edit"]),
        json!({
            "apiVersion": RBAC, "kind": "ClusterRoleBinding", "metadata": {"name": CLASSES},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": CLASSES},
            "subjects": [everybody],
        }),
    ])
}

/// The policies that need no type to exist, and those of the built-in types.
pub fn policies() -> Result<Vec<Value>, String> {
    let mut all = infrastructure();
    all.extend(paths());
    all.extend(tokens());
    all.extend(stays());
    all.extend(gates());
    all.extend(guards(&Guarded {
        name: "persistentvolumes",
        group: "",
        version: "v1",
        claims: "persistentvolumeclaims",
        class_kind: ("storage.k8s.io/v1", "StorageClass"),
        class_resource: ("storage.k8s.io", "storageclasses"),
        class_field: "storageClassName",
        class_annotation: "volume.beta.kubernetes.io/storage-class",
        resource_field: "volumeName",
    }));
    Ok(all)
}

/// The roles of the built-in types: their policies come with their definitions.
pub fn type_roles() -> Result<Vec<Value>, String> {
    let mut all = Vec::new();
    for object in builtin_types()? {
        let kind = ResourceType::parse(&object)
            .map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))?;
        all.extend(access(&kind).into_iter().filter(|own| own["kind"] == "ClusterRole"));
    }
    Ok(all)
}

/// A policy that refuses, and what binds it to all its requests.
fn refuses(name: &str, spec: Value) -> Vec<Value> {
    let object = |kind: &str, spec: Value| {
        let meta = json!({"name": name, "labels": {"app.kubernetes.io/managed-by": "conductor"}});
        json!({"apiVersion": POLICY, "kind": kind, "metadata": meta, "spec": spec})
    };
    let binding = json!({"policyName": name, "validationActions": ["Deny"]});
    let mut spec = spec;
    spec["failurePolicy"] = json!("Fail");
    vec![object("ValidatingAdmissionPolicy", spec), object("ValidatingAdmissionPolicyBinding", binding)]
}

/// What everything hangs on is not deleted by mistake: the namespace with what is behind the claims, and the definitions of types
/// and of what providers make.
fn stays() -> Vec<Value> {
    let delete = |group: &str, resource: &str| json!({"apiGroups": [group], "apiVersions": ["*"], "operations": ["DELETE"], "resources": [resource]});
    let mut namespace = delete("", "namespaces");
    namespace["resourceNames"] = json!([SYSTEM_NAMESPACE]);
    let mut all = refuses(
        "system-namespace-stays",
        json!({
            "matchConstraints": {"resourceRules": [namespace]},
            "validations": [{
                "expression": "false",
                "message": format!("what is behind every claim is in {SYSTEM_NAMESPACE}, and so are the accounts of those who look after it: to uninstall, delete all claims and resources, then the ValidatingAdmissionPolicyBinding system-namespace-stays, then this"),
                "reason": "Forbidden",
            }],
        }),
    );
    let of = format!("oldObject.metadata.?annotations[?'{TYPE}'].orValue('')");
    all.extend(refuses(
        "definitions-of-types-stay",
        json!({
            "matchConstraints": {"resourceRules": [delete("apiextensions.k8s.io", "customresourcedefinitions")]},
            "matchConditions": [{"name": "is-of-a-type", "expression": format!("{of} != '' && oldObject.metadata.annotations[?'{RETIRED}'].orValue('') != 'true'")}],
            "validations": [{
                "expression": "false",
                "messageExpression": format!("'this is of ResourceType ' + {of} + ', and all its objects would go with it: delete the ResourceType, which goes when nothing of it is left'"),
                "reason": "Forbidden",
            }],
        }),
    ));
    // where writes go in order a volume says so after its claim, and until then nothing else holds it
    let phase = "oldObject.?status.?phase.orValue('')";
    all.extend(refuses(
        "volumes-being-bound-stay",
        json!({
            "matchConstraints": {"resourceRules": [delete("", "persistentvolumes")]},
            "matchConditions": [{"name": "is-being-bound", "expression": format!(
                "oldObject.spec.?claimRef.?uid.orValue('') != '' && {phase} in ['', 'Pending', 'Available']"
            )}],
            "validations": [{
                "expression": "false",
                "messageExpression": "'it is being bound to claim ' + oldObject.spec.claimRef.?namespace.orValue('') + '/' + oldObject.spec.claimRef.?name.orValue('') + ': delete that first, or try again when this says Bound; if it never will, set spec.claimRef.uid to null'",
                "reason": "Forbidden",
            }],
        }),
    ));
    all.extend(refuses(
        "definitions-of-implementations-stay",
        json!({
            "matchConstraints": {"resourceRules": [delete("apiextensions.k8s.io", "customresourcedefinitions")]},
            "matchConditions": [{"name": "is-a-providers", "expression": format!("oldObject.spec.group.endsWith('.local.conductor.io') && oldObject.metadata.?annotations[?'{RETIRED}'].orValue('') != 'true'")}],
            "validations": [{
                "expression": "false",
                "message": format!("all that providers have made of this kind would go with it, with the data in it: delete what was claimed instead; to do without the kind, annotate this with {RETIRED}=true first"),
                "reason": "Forbidden",
            }],
        }),
    ));
    all
}

/// Whoever may write Secrets in the system namespace gets no token of its service accounts by it.
fn tokens() -> Vec<Value> {
    let account = "object.metadata.?annotations['kubernetes.io/service-account.name'].orValue('')";
    refuses(
        "secrets-ask-for-no-token",
        json!({
            "matchConstraints": {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": SYSTEM_NAMESPACE}},
                "resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["secrets"], "scope": "Namespaced"}],
            },
            "matchConditions": [{"name": "asks-for-a-token", "expression": "has(object.type) && object.type == 'kubernetes.io/service-account-token'"}],
            "validations": [{
                "expression": format!("authorizer.group('').resource('serviceaccounts').subresource('token').namespace('{SYSTEM_NAMESPACE}').name({account}).check('create').allowed()"),
                "message": "this Secret asks for the token of a service account, which takes the verb create on its serviceaccounts/token",
                "reason": "Forbidden",
            }],
        }),
    )
}

/// A Pod that names claims of other types than volumes is held until they are bound.
fn gates() -> Vec<Value> {
    let name = "pods-wait-for-their-claims";
    let meta = json!({"name": name, "labels": {"app.kubernetes.io/managed-by": "conductor"}});
    let claims = format!("object.metadata.?annotations['{CLAIMS}'].orValue('')");
    let others = format!(
        "{claims}.split(',').exists(c, c.contains('/') && !c.trim().lowerAscii().matches('^(persistentvolumeclaims?|pvc)/'))"
    );
    let gate =
        format!("Object{{spec: Object.spec{{schedulingGates: [Object.spec.schedulingGates{{name: '{GATE}'}}]}}}}");
    let policy = json!({
        "apiVersion": POLICY, "kind": "MutatingAdmissionPolicy", "metadata": meta,
        "spec": {
            "failurePolicy": "Fail", "reinvocationPolicy": "IfNeeded",
            "matchConstraints": {"resourceRules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"], "scope": "Namespaced",
            }]},
            "matchConditions": [
                {"name": "names-claims", "expression": others},
                // who names the node has scheduled it
                {"name": "is-not-scheduled", "expression": "object.spec.?nodeName.orValue('') == ''"},
            ],
            "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": gate}}],
        },
    });
    let binding = json!({"apiVersion": POLICY, "kind": "MutatingAdmissionPolicyBinding", "metadata": meta, "spec": {"policyName": name}});
    vec![policy, binding]
}

/// Templates name no directory of a machine: what is made from one comes from the provisioner, who may not.
fn paths() -> Vec<Value> {
    let path = |object: &str| format!("(has({object}.spec) && has({object}.spec.path) ? {object}.spec.path : '')");
    let names = format!("{} != ''", path("object"));
    let anew = format!("oldObject == null || {} != {}", path("object"), path("oldObject"));
    refuses(
        "templates-name-no-directory",
        json!({
            "matchConstraints": {"resourceRules": [{
                "apiGroups": ["volume.local.conductor.io"], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE"],
                "resources": ["directoryvolumes"],
            }]},
            "matchConditions": [{"name": "names-a-directory", "expression": names}, {"name": "anew", "expression": anew}],
            "validations": [{
                "expression": "authorizer.group('conductor.io').resource('infrastructures').check('use').allowed()",
                "message": "spec.path names a directory of a machine, which takes the verb use on infrastructures.conductor.io: declare a DirectoryVolume instead of a template, or leave the path out",
                "reason": "Forbidden",
            }],
        }),
    )
}

/// The volumes that a Pod may have: claims, and what comes from the API itself.
const VOLUMES: [&str; 8] =
    ["persistentVolumeClaim", "configMap", "secret", "emptyDir", "projected", "downwardAPI", "ephemeral", "image"];

/// Pods name no infrastructure in-line. Exempt are those who may `use` `infrastructures.conductor.io`, and the namespaces of the
/// system and those that a cluster admin labels.
fn infrastructure() -> Vec<Value> {
    let allowed = VOLUMES.map(|volume| format!("has(v.{volume})")).join(" || ");
    let volumes = "has(object.spec.volumes) ? object.spec.volumes : []";
    let exempt = json!({"matchExpressions": [
        {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", SYSTEM_NAMESPACE]},
        {"key": "conductor.io/infrastructure", "operator": "NotIn", "values": ["allowed"]},
    ]});
    refuses(
        "pods-name-no-infrastructure",
        json!({
            "matchConstraints": {
                "namespaceSelector": exempt,
                "resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"], "scope": "Namespaced"}],
            },
            "matchConditions": [{"name": "has-volumes", "expression": "has(object.spec.volumes)"}],
            "variables": [{"name": "infrastructure", "expression": format!("({volumes}).filter(v, !({allowed})).map(v, v.name)")}],
            "validations": [{
                "expression": "size(variables.infrastructure) == 0 || authorizer.group('conductor.io').resource('infrastructures').check('use').allowed()",
                "messageExpression": "'volumes ' + variables.infrastructure.join(', ') + ' name infrastructure in-line: claim it instead (a PersistentVolumeClaim), or ask for the verb use on infrastructures.conductor.io'",
                "reason": "Forbidden",
            }],
        }),
    )
}
