//! The document of the control API, made from the types and the descriptions here, and compared with the one in `daemon/docs`.
//! `LEASEHOLD_WRITE=1 cargo test -p leasehold openapi` rewrites it.

use std::collections::BTreeSet;
use std::path::Path;
use std::{env, fs};

use leasehold_api::control::{
    self, Bindings, Events, Frames, Log, LogChange, Obeyed, Ranges, Status, Story,
};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

/// Parameters of a query, each with its description.
type Parameters = &'static [(&'static str, &'static str)];

const NONE: Parameters = &[];

/// Those that select leases.
const WHICH: Parameters = &[
    (
        "name",
        "the lease's attachment, address, pod or host name, or the beginning of its container's id",
    ),
    ("network", "its network"),
    ("container", "the beginning of its container's id"),
    ("address", "its address, or a subnet that has it"),
    ("state", "its state, in any case"),
    ("door", "`cni` or `docker`"),
];

const ALL: (&str, &str) = ("all", "`true`: all leases, if nothing else says which");

const FORCE: (&str, &str) = ("force", "`true`: also leases of living containers");

const EVENTS: Parameters = &[
    ("after", "events after this number; 0 by default"),
    ("limit", "at most this many; 1000 by default, and at most"),
    (
        "wait",
        "how many seconds to wait if there is none yet, 60 at most",
    ),
];

const CAPTURE: Parameters = &[
    ("after", "frames after this number; from now on without it"),
    (
        "wait",
        "how many seconds to wait if there is none yet, 60 at most",
    ),
    ("attachment", "only those of this attachment"),
];

/// The calls, and the schemas of their requests and answers.
struct Document {
    generator: SchemaGenerator,
    paths: Map<String, Value>,
}

impl Document {
    /// Adds a call that answers with JSON.
    fn call<T: JsonSchema>(
        &mut self,
        method: &str,
        path: &str,
        summary: &str,
        parameters: &[(&str, &str)],
    ) {
        let schema = self.generator.subschema_for::<T>();
        let good = json!({ "description": "done", "content": { "application/json": { "schema": schema } } });
        self.add(method, path, summary, parameters, good);
    }

    /// Adds a call whose successful answer is `good`.
    fn add(
        &mut self,
        method: &str,
        path: &str,
        summary: &str,
        parameters: &[(&str, &str)],
        good: Value,
    ) {
        let parameter = |(name, what): &(&str, &str)| json!({ "name": name, "in": "query", "description": what, "schema": { "type": "string" } });
        let mut call = json!({
            "summary": summary,
            "responses": {
                "200": good,
                "default": {
                    "description": "it was not done, or not understood",
                    "content": { "application/json": { "schema": { "$ref": "#/components/schemas/Error" } } },
                },
            },
        });
        if !parameters.is_empty() {
            call["parameters"] = parameters.iter().map(parameter).collect();
        }
        let place = self.paths.entry(path).or_insert_with(|| json!({}));
        place[method] = call;
    }

    fn body<T: JsonSchema>(&mut self, method: &str, path: &str) {
        let schema = self.generator.subschema_for::<T>();
        self.paths[path][method]["requestBody"] =
            json!({ "content": { "application/json": { "schema": schema } } });
    }

    fn end(mut self) -> Value {
        let mut schemas = self.generator.take_definitions(true);
        let error = json!({
            "type": "object",
            "properties": { "error": { "type": "string", "description": "A sentence for a person." } },
            "required": ["error"],
        });
        schemas.insert("Error".to_owned(), error);
        json!({
            "openapi": "3.1.0",
            "info": {
                "title": "leasehold",
                "version": "1",
                "description": "The control API of the leasehold daemon: HTTP/1.1 on its Unix socket, one request a connection. \
                    Fields may be added to answers; the path's version changes if one is removed or changes its meaning.",
            },
            "paths": self.paths,
            "components": { "schemas": schemas },
        })
    }
}

/// Returns the document.
fn document() -> Value {
    let settings = SchemaSettings::draft2020_12()
        .with(|settings| settings.definitions_path = "/components/schemas".into());
    let mut document = Document {
        generator: settings.into_generator(),
        paths: Map::new(),
    };
    let plain = |what: &str, kind: &str| json!({ "description": what, "content": { kind: {} } });
    let with = |more: &[(&'static str, &'static str)]| [WHICH, more].concat();
    document.call::<Bindings>(
        "get",
        control::BINDINGS,
        "All leases, or the selected ones",
        WHICH,
    );
    document.call::<Ranges>(
        "get",
        control::RANGES,
        "The ranges of fallbacks, and their addresses in use",
        NONE,
    );
    document.call::<Story>("get", control::SHOW, "Everything about one lease", WHICH);
    document.call::<Status>("get", control::STATUS, "How the daemon is doing", NONE);
    document.call::<Events>("get", control::EVENTS, "What happened to leases", EVENTS);
    document.call::<Frames>(
        "get",
        control::CAPTURE,
        "DHCP and ARP frames, as they are sent and received",
        CAPTURE,
    );
    document.call::<Obeyed>("post", control::RENEW, "Extend leases now", &with(&[ALL]));
    document.call::<Obeyed>(
        "post",
        control::RELEASE,
        "Give leases back",
        &with(&[ALL, FORCE]),
    );
    document.call::<Log>("get", control::LOG, "What is logged", NONE);
    document.call::<Log>(
        "put",
        control::LOG,
        "Change what is logged for a while",
        NONE,
    );
    document.body::<LogChange>("put", control::LOG);
    document.call::<Log>(
        "delete",
        control::LOG,
        "Log what was logged at the start again",
        NONE,
    );
    let metrics = plain("OpenMetrics text", "application/openmetrics-text");
    document.add("get", control::METRICS, "What is counted", NONE, metrics);
    let turns = plain("its loop runs", "application/json");
    document.add(
        "get",
        control::HEALTH,
        "Whether the daemon is up",
        NONE,
        turns,
    );
    let records = plain("an ADD could be recorded now", "application/json");
    document.add(
        "get",
        control::READINESS,
        "Whether an ADD could be served",
        NONE,
        records,
    );
    document.end()
}

#[test]
fn the_document_is_what_the_types_say() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/openapi.json");
    let made = format!("{:#}\n", document());
    if env::var_os("LEASEHOLD_WRITE").is_some() {
        fs::write(&path, &made).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == made,
        "daemon/docs/openapi.json is out of date: run LEASEHOLD_WRITE=1 cargo test -p leasehold openapi"
    );
}

#[test]
fn every_path_of_the_control_api_is_in_the_document() {
    let code = include_str!("../../../api/src/control.rs");
    let paths = code
        .lines()
        .filter_map(|line| line.strip_prefix("pub const ")?.split_once(": &str = \"/"));
    let known: BTreeSet<_> = paths
        .map(|(_, path)| format!("/{}", path.trim_end_matches("\";")))
        .collect();
    let document = document();
    let documented: BTreeSet<_> = document["paths"]
        .as_object()
        .unwrap()
        .keys()
        .cloned()
        .collect();
    assert_eq!(known, documented);
}

/// Returns the method and the path of every call of the document.
pub(super) fn calls() -> Vec<(String, String)> {
    let document = document();
    let paths = document["paths"].as_object().unwrap();
    let calls = |(path, methods): (&String, &Value)| {
        let methods: Vec<_> = methods.as_object().unwrap().keys().cloned().collect();
        methods
            .into_iter()
            .map(|method| (method.to_uppercase(), path.clone()))
            .collect::<Vec<_>>()
    };
    paths.iter().flat_map(calls).collect()
}
