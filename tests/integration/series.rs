//! Whatever clients send, the number of metric series stays below its bound.

use std::collections::{BTreeSet, HashMap};

use reqwest::Method;
use verbatim::fetch;
use verbatim::telemetry::metrics::{self, SERIES_MAX};

use crate::receiver::{Receiver, callback_parameter};
use crate::server::{RAW, Setup, TestServer, answer, client, say};
use crate::socket;

/// Stands in all that a client chooses here.
const MARK: &str = "zqmark";
const ORGANISATIONS: usize = 4;
const METHODS: [&str; 8] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "ZQMARK"];
const LABELS: [&str; 14] = [
    "class",
    "event",
    "kind",
    "le",
    "method",
    "model",
    "outcome",
    "phase",
    "reason",
    "response_status",
    "route",
    "status",
    "surface",
    "version",
];

/// The labels of a line of the exposition: no value holds a comma, and routes may hold braces.
fn labels(line: &str) -> impl Iterator<Item = (&str, &str)> {
    let labels = line.split_once('{').and_then(|(_, rest)| rest.rsplit_once('}'));
    labels.map_or("", |(labels, _)| labels).split(',').filter_map(|label| label.split_once('='))
}

/// Every route by every method, with keys that are good, bad and missing.
async fn knock(server: &TestServer, key: &str, mark: &str) {
    let client = client();
    let patterns: BTreeSet<&str> = server.routes.iter().map(|(_, pattern)| pattern.as_str()).collect();
    for pattern in patterns {
        let path = pattern.replace("{request_id}", mark);
        for path in [path.clone(), format!("{path}/{mark}"), format!("{path}?{mark}={mark}")] {
            for method in METHODS {
                let method = Method::from_bytes(method.as_bytes()).expect("a method");
                for key in [Some(key), Some(mark), None] {
                    let mut request = client.request(method.clone(), server.url(&path));
                    request = request
                        .header("user-agent", mark)
                        .header("origin", format!("https://{mark}.example"));
                    if let Some(key) = key {
                        request = request.bearer_auth(key);
                    }
                    request.send().await.expect("an answer");
                }
            }
        }
    }
}

/// Transcriptions whose parameters mean something, and such as do not.
async fn ask(server: &TestServer, receiver: &Receiver, key: &str, mark: &str) {
    let callback = callback_parameter(&format!("http://127.0.0.1:{}/{mark}", receiver.port));
    for query in [
        format!("tag={mark}&extra={mark}:{mark}"),
        format!("model={mark}"),
        format!("language={mark}"),
        "language=es".to_owned(),
        format!("encoding={mark}"),
        format!("version={mark}&{mark}={mark}"),
        callback,
        callback_parameter(&format!("http://10.0.0.1/{mark}")),
    ] {
        let url = server.url(&format!("/v1/listen?{RAW}&{query}"));
        answer(client().post(url).bearer_auth(key).body(say(1))).await;
        drop(socket::listen(server.address, key, &format!("{RAW}&{query}")).await);
    }
    let url = format!("{{\"url\": \"http://10.0.0.1/{mark}\"}}");
    let request = client().post(server.url("/v1/listen")).bearer_auth(key);
    answer(request.header("content-type", "application/json").body(url)).await;
}

#[tokio::test]
async fn clients_cannot_multiply_the_series_of_metrics() {
    metrics::start();
    let receiver = Receiver::start(&[]).await;
    let fetch = fetch::Config { allow: vec![receiver.allowed()], ..fetch::Config::default() };
    let setup = Setup { organisations: ORGANISATIONS, fetch, ..Setup::default() };
    let server = TestServer::start(setup).await;
    for (number, key) in std::iter::once(&server.key).chain(&server.others).enumerate() {
        let mark = format!("{MARK}{number}");
        knock(&server, key, &mark).await;
        ask(&server, &receiver, key, &mark).await;
    }

    let request = client().get(server.url("/metrics")).bearer_auth(&server.operator);
    let text = request.send().await.expect("an answer").text().await.expect("text");
    // Those of other tests of this process are among them.
    let series: Vec<&str> = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    assert!((100..SERIES_MAX).contains(&series.len()), "{} series", series.len());
    assert!(!text.to_ascii_lowercase().contains(MARK), "a label is the client's to choose");
    let mut values: HashMap<&str, BTreeSet<&str>> = HashMap::new();
    for (label, value) in series.iter().flat_map(|line| labels(line)) {
        assert!(LABELS.contains(&label), "`{label}` is a label of which nothing is known");
        values.entry(label).or_default().insert(value);
    }
    assert!(values["method"].len() <= METHODS.len(), "{:?}", values["method"]);
}
