//! What is refused at admission, as a table.

use conductor_claims::review::{Operation, Request, Snapshot, Verdict, review, standing};
use conductor_claims::types::{ResourceType, builtin_types};
use serde_json::{Value, json};

fn types() -> Vec<ResourceType> {
    builtin_types().expect("types").iter().map(|t| ResourceType::parse(t).expect("a type")).collect()
}

/// The first field refused, or "" if it goes through.
fn check(operation: Operation, object: Value, old: Value, managers: &[Value], claims: usize, expected: &str) {
    let types = types();
    let snapshot = Snapshot { types: &types, managers, claims, ..Snapshot::default() };
    let verdict = review(&Request { operation, object: &object, old: &old }, &snapshot);
    let field = match &verdict {
        Verdict::Allow(_) => "",
        Verdict::Refuse(errors) if errors[0].field.is_empty() => "object",
        Verdict::Refuse(errors) => &errors[0].field,
    };
    assert_eq!(field, expected, "{object} {old}: {verdict:?}");
}

fn of(kind: &str, body: Value) -> Value {
    let mut object = body;
    object["apiVersion"] = json!("storage.conductor.io/v1alpha1");
    object["kind"] = json!(kind);
    object
}

#[test]
fn resources_claims_and_classes() {
    let create = |object: Value, expected: &str| check(Operation::Create, object, Value::Null, &[], 0, expected);
    let resource = |spec: Value| of("RelationalDatabase", json!({"spec": spec}));
    create(resource(json!({"engine": "mysql"})), "");
    create(resource(json!({})), "spec.engine");
    create(
        resource(json!({"engine": "mysql", "highlyAvailable": true, "highly-available": true})),
        "spec.highlyAvailable",
    );
    create(resource(json!({"engine": "mysql", "claimRefs": [{"name": "a"}, {"name": "b"}]})), "spec.claimRefs");
    let refs = json!([{"uid": "1", "amounts": {"storage": "6Gi"}}, {"uid": "2", "amounts": {"storage": "5Gi"}}]);
    create(
        resource(json!({"engine": "mysql", "maxClaims": 2, "capacity": {"storage": "10Gi"}, "claimRefs": refs})),
        "spec.claimRefs",
    );
    create(
        resource(json!({"engine": "mysql", "maxClaims": 2, "capacity": {"storage": "11Gi"}, "claimRefs": refs})),
        "",
    );
    create(resource(json!({"engine": "mysql", "template": {"kind": "A"}})), "spec.template.apiVersion");

    let claim = |spec: Value| of("RelationalDatabaseClaim", json!({"spec": spec}));
    create(claim(json!({})), "");
    create(claim(json!({"version": ">="})), "spec.version");
    create(claim(json!({"version": "not a range"})), "spec.version");
    create(claim(json!({"version": "latest"})), "");
    create(claim(json!({"version": ">= 8 <9"})), "");
    create(
        resource(json!({"engine": "mysql", "implementationRef": {"name": "a"}})),
        "spec.implementationRef.apiVersion",
    );
    create(
        claim(json!({"selector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}})),
        "spec.selector.matchExpressions[0].operator",
    );
    create(claim(json!({"selector": {"matchLabels": {"bad key!": "x"}}})), "spec.selector.matchLabels.bad key!");
    create(
        claim(json!({"selector": {"matchLabels": {"example.com/tier": "a b"}}})),
        "spec.selector.matchLabels.example.com/tier",
    );
    create(claim(json!({"selector": {"matchLabels": {"example.com/tier": "", "b": "x_1.y"}}})), "");
    create(
        claim(json!({"resources": {"requests": {"storage": "5Gi"}, "limits": {"storage": "4Gi"}}})),
        "spec.resources.limits.storage",
    );
    let update = |old: Value, new: Value, expected: &str| check(Operation::Update, new, old, &[], 0, expected);
    update(claim(json!({})), claim(json!({"resourceName": "a"})), "");
    update(claim(json!({"resourceName": "a"})), claim(json!({"resourceName": "b"})), "spec.resourceName");
    let mut bound = claim(json!({"engine": "mysql"}));
    bound["status"] = json!({"phase": "Bound"});
    update(bound, claim(json!({"engine": "postgres"})), "spec.engine");
    update(claim(json!({"engine": "mysql"})), claim(json!({"engine": "postgres"})), "");

    let template = json!({"apiVersion": "a/v1", "kind": "B"});
    create(of("RelationalDatabaseClass", json!({"reclaimPolicy": "Retain", "template": template})), "");
    create(of("RelationalDatabaseClass", json!({"spec": {"reclaimPolicy": "Retain", "template": template}})), "");
    create(
        of("RelationalDatabaseClass", json!({"reclaimPolicy": "Retain", "spec": {"template": template}})),
        "reclaimPolicy",
    );
    create(
        of("RelationalDatabaseClass", json!({"template": {"apiVersion": "a/v1", "kind": "${claim.spec.x}"}})),
        "template.kind",
    );
    create(
        of("RelationalDatabaseClass", json!({"offers": {"capacity": {"storage": {"max": "many"}}}})),
        "offers.capacity.storage.max",
    );
}

#[test]
fn expressions_are_checked_where_they_are_written() {
    let create = |object: Value, expected: &str| check(Operation::Create, object, Value::Null, &[], 0, expected);
    let claim = |e: &str| of("RelationalDatabaseClaim", json!({"spec": {"expression": e}}));
    for fine in [
        "resource.spec.engine == 'mysql'",
        "self.metadata.labels['zone'] == 'a' && claim.spec.?version.hasValue()",
        "quantity(resource.spec.capacity.storage).compareTo(quantity('5Gi')) > 0",
        "resource.spec['engine'] == 'mysql'",
        "",
    ] {
        create(claim(fine), "");
    }
    for wrong in
        ["resource.spec.engnie == 'mysql'", "resource.spec.engine", "'a' + 'b'", "resource.spec. ==", "clam.spec"]
    {
        let refused = wrong != "resource.spec.engine";
        create(claim(wrong), if refused { "spec.expression" } else { "" });
    }
    let class = |body: Value| of("RelationalDatabaseClass", json!({"spec": body}));
    let template = |size: &str| json!({"apiVersion": "a/v1", "kind": "B", "spec": {"sizes": [{"size": size}]}});
    create(class(json!({"template": template("${claim.spec.resources.requests.storage}-${class.metadata.name}")})), "");
    create(class(json!({"template": template("${resource.metadata.name}")})), "");
    for wrong in ["${claim.spec.resources.requests.storge}", "${implementation.status}", "${claim.spec.engine +}"] {
        create(class(json!({"template": template(wrong)})), "spec.template.spec.sizes[0].size");
        let several = json!({"templates": [{"name": "a", "template": template(wrong)}]});
        create(class(several), "spec.templates[0].template.spec.sizes[0].size");
    }
    create(class(json!({"readyWhen": "implementation.status.ready == resource.spec.maxClaims"})), "");
    create(class(json!({"readyWhen": "claim.spec.engine == 'mysql'"})), "spec.readyWhen");
    create(class(json!({"readyWhen": "'yes'"})), "spec.readyWhen");
    let several = json!({"templates": [{"name": "a", "template": template("x"), "readyWhen": "1"}]});
    create(class(several), "spec.templates[0].readyWhen");
    create(class(json!({"connection": {"host": "implementation.status.host", "uri": "x://${secret.password}"}})), "");
    create(class(json!({"connection": {"host": "implementation.status."}})), "spec.connection.host");
    create(class(json!({"connection": {"a b": "'x'"}})), "spec.connection.a b");
    create(class(json!({"connection": {"x": "a ${not closed"}})), "spec.connection.x");
    create(
        class(json!({"template": template("${resource.metadata.name + claim.metadata.name}")})),
        "spec.template.spec.sizes[0].size",
    );
    create(class(json!({"connection": {"uri": "x://${password}"}})), "spec.connection.uri");
    create(class(json!({"offers": {"engine": "${claim.spec.engine}", "capacity": {"storage": "${'5Gi'}"}}})), "");
    create(class(json!({"offers": {"engine": "${resource.spec.engine}"}})), "spec.offers.engine");
    create(class(json!({"offers": {"engine": "${claim.spec.engine"}})), "spec.offers.engine");
    create(
        class(json!({"offers": {"capacity": {"storage": {"min": "10Gi", "max": "1Gi"}}}})),
        "spec.offers.capacity.storage.max",
    );
    create(class(json!({"offers": {"capacity": {"storage": "${claim.spec.size}"}}})), "spec.offers.capacity.storage");
    // a resource has no claim
    let resource =
        |size: &str| of("RelationalDatabase", json!({"spec": {"engine": "mysql", "template": template(size)}}));
    create(resource("${resource.spec.capacity.storage}"), "");
    create(resource("${claim.spec.engine}"), "spec.template.spec.sizes[0].size");
    // what was let through once stops nobody
    let update = |old: Value, new: Value, expected: &str| check(Operation::Update, new, old, &[], 0, expected);
    let mut labelled = resource("${claim.spec.engine}");
    labelled["metadata"] = json!({"labels": {"a": "b"}});
    update(resource("${claim.spec.engine}"), labelled, "");
    update(resource("x"), resource("${claim.spec.engine}"), "spec.template.spec.sizes[0].size");
    let volumes = |spec: Value| json!({"apiVersion": "conductor.io/v1alpha1", "kind": "VolumeTemplate", "spec": spec});
    create(volumes(json!({"template": template("${claim.spec.resources.requests.storage}")})), "");
    create(volumes(json!({"template": template("${resource.spec}")})), "spec.template.spec.sizes[0].size");
    create(
        volumes(json!({"template": template("x"), "volume": {"nfs": {"server": "${implementation.status.host}"}}})),
        "",
    );
    create(
        volumes(json!({"template": template("x"), "volume": {"nfs": {"server": "${host}"}}})),
        "spec.volume.nfs.server",
    );
}

#[test]
fn bound_claims_grow_where_their_class_lets_them_and_never_shrink() {
    let types = types();
    let claim = |resources: Value| {
        let mut claim = of("RelationalDatabaseClaim", json!({"spec": {"resources": resources}}));
        claim["status"] = json!({"phase": "Bound", "class": "a", "capacity": {"storage": "2Gi"}});
        claim
    };
    let growing = json!({"metadata": {"name": "a"}, "spec": {"allowExpansion": true}});
    let fixed = json!({"metadata": {"name": "a"}, "reclaimPolicy": "Delete"});
    let old = claim(json!({"requests": {"storage": "1Gi"}, "limits": {"storage": "9Gi"}}));
    let check = |resources: Value, class: Option<&Value>, expected: &str| {
        let snapshot = Snapshot { types: &types, class, ..Snapshot::default() };
        let new = claim(resources);
        let verdict = review(&Request { operation: Operation::Update, object: &new, old: &old }, &snapshot);
        let said = match &verdict {
            Verdict::Allow(_) => String::new(),
            Verdict::Refuse(errors) => errors.iter().map(ToString::to_string).collect(),
        };
        assert!(said.contains(expected) && said.is_empty() == expected.is_empty(), "{new}: {said}");
    };
    let asks = |size: &str| json!({"requests": {"storage": size}, "limits": {"storage": "9Gi"}});
    check(asks("3Gi"), Some(&growing), "");
    check(asks("3Gi"), None, "");
    check(asks("3Gi"), Some(&fixed), "class a does not let what it made grow");
    // it has that much already
    check(asks("2Gi"), Some(&fixed), "");
    check(asks("500Mi"), Some(&growing), "may not be lowered from 1Gi to 500Mi");
    check(json!({"limits": {"storage": "9Gi"}}), Some(&growing), "may not be lowered");
    check(asks("10Gi"), Some(&growing), "is less than the request");
    check(
        json!({"requests": {"storage": "1Gi"}, "limits": {"storage": "1Gi"}}),
        Some(&growing),
        "is less than the 2Gi",
    );
}

#[test]
fn a_number_for_a_version_is_advised_against() {
    let types = types();
    let snapshot = Snapshot { types: &types, ..Snapshot::default() };
    let object = of("RelationalDatabase", json!({"spec": {"engine": "mysql", "version": 5.6}}));
    let verdict = review(&Request { operation: Operation::Create, object: &object, old: &Value::Null }, &snapshot);
    assert!(matches!(verdict, Verdict::Allow(warnings) if warnings.len() == 1));
}

#[test]
fn types_and_managers() {
    let taken = |names: Value| {
        json!({"apiVersion": "conductor.io/v1alpha1", "kind": "ResourceType", "metadata": {"name": "fakes.example.com"},
            "spec": {"group": "example.com", "version": "v1", "names": names}})
    };
    let create = |object: Value, expected: &str| check(Operation::Create, object, Value::Null, &[], 0, expected);
    create(taken(json!({"resource": "Fake"})), "");
    create(taken(json!({"resource": "Fake", "claim": "BucketClaim"})), "spec.names");
    create(taken(json!({"resource": "Fake", "shortNames": {"claim": "rdbc"}})), "spec.names");
    let database = &builtin_types().expect("types")[0];
    check(Operation::Create, database.clone(), Value::Null, &[], 0, "");
    check(Operation::Delete, Value::Null, database.clone(), &[], 0, "");
    check(Operation::Delete, Value::Null, database.clone(), &[], 3, "object");
    let mut changed = database.clone();
    changed["spec"]["attributes"]["engine"]["type"] = json!("boolean");
    check(Operation::Update, changed, database.clone(), &[], 0, "spec.attributes.engine.type");
    let mut thief = database.clone();
    (thief["spec"]["names"]["resource"], thief["metadata"]["name"]) =
        (json!("Store"), json!("stores.storage.conductor.io"));
    check(Operation::Create, thief, Value::Null, &[], 0, "spec.names");

    let manager = |name: &str, made: &str, default: bool, classes: &[&str]| {
        json!({"apiVersion": "conductor.io/v1alpha1", "kind": "Manager", "metadata": {"name": name, "creationTimestamp": made},
            "spec": {"type": "buckets.storage.conductor.io", "default": default,
                "classes": classes.iter().map(|c| json!({"name": c})).collect::<Vec<_>>()}})
    };
    let old = manager("old", "2026-01-01T00:00:00Z", true, &["gold"]);
    check(
        Operation::Create,
        manager("new", "2026-02-01T00:00:00Z", false, &["silver"]),
        Value::Null,
        std::slice::from_ref(&old),
        0,
        "",
    );
    check(
        Operation::Create,
        manager("new", "2026-02-01T00:00:00Z", true, &[]),
        Value::Null,
        std::slice::from_ref(&old),
        0,
        "spec.default",
    );
    check(
        Operation::Create,
        manager("new", "2026-02-01T00:00:00Z", false, &["gold"]),
        Value::Null,
        std::slice::from_ref(&old),
        0,
        "spec.classes",
    );
    let mut lone = manager("lone", "2026-02-01T00:00:00Z", false, &["gold"]);
    lone["spec"]["defaultClass"] = json!("silver");
    check(Operation::Create, lone, Value::Null, &[], 0, "spec.defaultClass");

    // what slipped through admission together: the older stands
    let young = manager("a-young", "2026-02-01T00:00:00Z", true, &["gold", "iron"]);
    let all = [young.clone(), old.clone()];
    assert_eq!((standing(&old, &all).default, standing(&old, &all).classes), (true, vec!["gold".to_owned()]));
    let lost = standing(&young, &all);
    assert_eq!((lost.default, lost.classes, lost.conflicts.len()), (false, vec!["iron".to_owned()], 2));
}

#[test]
fn consumers_name_claims_of_their_own_namespace() {
    let pod = |claims: &str| json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"annotations": {"conductor.io/claims": claims}}});
    let create = |object: Value, expected: &str| check(Operation::Create, object, Value::Null, &[], 0, expected);
    create(pod("RelationalDatabaseClaim/db, BucketClaim/b"), "");
    create(pod("other/RelationalDatabaseClaim/db"), "metadata.annotations.conductor.io/claims");
    let ingress = |claim: &str| json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"annotations": {"network.conductor.io/claim": claim}}});
    create(ingress("web"), "");
    create(ingress("other/web"), "metadata.annotations.network.conductor.io/claim");
}

#[test]
fn what_claims_use_stays_what_they_were_given() {
    let types = types();
    let resource = |spec: Value| {
        let mut resource = of("RelationalDatabase", json!({"spec": spec}));
        let reference =
            json!({"name": "a", "namespace": "n", "uid": "u", "amounts": {"storage": "800Mi"}, "by": "Manager"});
        resource["spec"]["claimRefs"] = json!([reference]);
        resource["status"] = json!({"phase": "Bound", "capacity": {"storage": "1Gi"}});
        resource
    };
    let template = |kind: &str, size: &str| json!({"apiVersion": "a.example/v1", "kind": kind, "spec": {"size": size}});
    let check = |spec: Value, expected: &str| {
        let old = resource(json!({"engine": "mysql", "capacity": {"storage": "1Gi"}, "template": template("A", "1")}));
        let snapshot = Snapshot { types: &types, ..Snapshot::default() };
        let new = resource(spec);
        let verdict = review(&Request { operation: Operation::Update, object: &new, old: &old }, &snapshot);
        let fields: Vec<String> = match verdict {
            Verdict::Refuse(errors) => errors.iter().map(|error| error.field.to_string()).collect(),
            _ => Vec::new(),
        };
        assert_eq!(fields.join(" "), expected);
    };
    let spec = |engine: &str, size: &str, template: Value| json!({"engine": engine, "capacity": {"storage": size}, "template": template});
    check(spec("mysql", "1Gi", template("A", "2")), "");
    check(spec("mysql", "900Mi", template("A", "1")), "");
    check(spec("mysql", "2Gi", template("A", "1")), "");
    check(spec("mysql", "500Mi", template("A", "1")), "spec.capacity.storage");
    check(spec("postgres", "1Gi", template("A", "1")), "spec.engine");
    check(spec("mysql", "1Gi", template("B", "1")), "spec.template.kind");
}
