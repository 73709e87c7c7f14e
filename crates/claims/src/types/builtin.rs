//! The types that come with Conductor, as the files a user would write.

use serde_json::Value;

const TYPES: [(&str, &str); 6] = [
    ("relationaldatabase", include_str!("../../types/relationaldatabase.yaml")),
    ("loadbalancer", include_str!("../../types/loadbalancer.yaml")),
    ("bucket", include_str!("../../types/bucket.yaml")),
    ("messagequeue", include_str!("../../types/messagequeue.yaml")),
    ("server", include_str!("../../types/server.yaml")),
    ("cluster", include_str!("../../types/cluster.yaml")),
];

const IMPLEMENTATIONS: [(&str, &str); 1] =
    [("rdsinstance", include_str!("../../types/implementations/rdsinstance.yaml"))];

/// Reads one YAML document as JSON.
pub fn read_yaml(text: &str) -> Result<Value, String> {
    serde_saphyr::from_str(text).map_err(|error| error.to_string())
}

fn read(files: &[(&str, &str)]) -> Result<Vec<Value>, String> {
    files.iter().map(|(name, text)| read_yaml(text).map_err(|e| format!("{name}.yaml: {e}"))).collect()
}

/// The built-in ResourceType objects.
pub fn builtin_types() -> Result<Vec<Value>, String> {
    read(&TYPES)
}

/// Definitions of implementation kinds that come along: the one the resource model's examples use.
pub fn builtin_implementations() -> Result<Vec<Value>, String> {
    read(&IMPLEMENTATIONS)
}
