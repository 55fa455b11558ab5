//! The bodies of the fuzz targets, run for a while on text like their usual input and on damaged files.

#[path = "../../fuzz/bodies.rs"]
mod bodies;

use std::path::Path;

use proptest::prelude::*;
use verbatim::api::parameters::{LIVE_TABLE, TABLE};

/// A query of known names with values likely and unlikely.
fn query() -> impl Strategy<Value = String> {
    let names: Vec<&str> = TABLE
        .iter()
        .flat_map(|row| std::iter::once(row.name).chain(row.aliases.iter().copied()))
        .chain(LIVE_TABLE.iter().map(|row| row.name))
        .collect();
    let value = prop_oneof![
        "true|false|True|en|es|multi|0|1|8000|-1|0\\.5|1e9|nan|linear16|POST|a:b|a:2,b:-3|http://a\\.example/",
        "[ -~]{0,12}",
        "\\PC{0,6}",
    ];
    let pair = (proptest::sample::select(names), value).prop_map(|(name, value)| format!("{name}={value}"));
    proptest::collection::vec(pair, 0..6).prop_map(|pairs| pairs.join("&"))
}

/// JSON, more or less.
fn json() -> impl Strategy<Value = String> {
    let leaf = prop_oneof!["null|true|0|-1\\.5e3", "\"[a-z/:\\\\\"u]{0,8}\""];
    let member = prop_oneof![3 => Just("\"url\"".to_owned()), 1 => "\"[a-z]{0,3}\""];
    leaf.prop_recursive(4, 32, 4, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(|items| format!("[{}]", items.join(","))),
            proptest::collection::vec((member.clone(), inner), 0..4).prop_map(|members| {
                let members: Vec<String> =
                    members.into_iter().map(|(name, value)| format!("{name}:{value}")).collect();
                format!("{{{}}}", members.join(","))
            }),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_query_is_answered(query in query(), noise in any::<Vec<u8>>()) {
        bodies::query(query.as_bytes());
        bodies::query(&noise);
    }

    #[test]
    fn any_json_is_answered(json in json(), noise in any::<Vec<u8>>(), cut in any::<proptest::sample::Index>()) {
        bodies::json_body(json.as_bytes());
        bodies::json_body(&json.as_bytes()[..cut.index(json.len() + 1)]);
        bodies::json_body(&noise);
    }
}

/// The first bytes of a small file in each container.
fn files() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(".verbatim/fixtures");
    let entries =
        std::fs::read_dir(&folder).expect("run ./setup").map(|entry| entry.expect("readable").path());
    let mut paths: Vec<_> = entries.filter(|path| path.extension().is_some()).collect();
    paths.sort();
    assert!(paths.len() >= 10, "only {} files", paths.len());
    let head = |path: &std::path::PathBuf| {
        let mut bytes = std::fs::read(path).expect("readable");
        bytes.truncate(16 << 10);
        bytes
    };
    paths.iter().map(head).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_file_is_answered(
        file in proptest::sample::select(files()),
        damage in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..12),
        end in any::<proptest::sample::Index>(),
        noise in any::<Vec<u8>>(),
    ) {
        let mut bytes = file;
        for (at, value) in damage {
            // Half of the damage goes to headers.
            let reach = if value & 1 == 0 { bytes.len().min(256) } else { bytes.len() };
            bytes[at.index(reach)] = value;
        }
        bytes.truncate(bytes.len().min(64 + end.index(bytes.len())));
        bodies::container(&bytes);
        bodies::container(&noise);
    }
}
