//! Certificates: renewed ones are used without a restart, and clients show theirs where that is asked for.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use hyper::{Method, StatusCode};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use verbatim::http::{Config, Request, Router, TlsConfig, json};

use crate::protocol::certified;
use crate::server::{Door, client};

async fn door(tls: TlsConfig) -> Door {
    let ok = async |_: Request| Ok(json(StatusCode::OK, &serde_json::json!({"ok": true})));
    let router = Router::new().route(Method::GET, "/ok", ok);
    Door::open(router, Config { tls: Some(tls), ..Config::default() }).await
}

/// The status of a request of a client that trusts `pem`, and shows `own`; `None` if there is no connection.
async fn ask(address: SocketAddr, pem: &str, own: Option<&str>) -> Option<u16> {
    drop(client());
    let builder = reqwest::Client::builder()
        .no_proxy()
        .tls_certs_only([reqwest::Certificate::from_pem(pem.as_bytes()).expect("a certificate")])
        .resolve("localhost", address);
    let builder = match own {
        Some(own) => builder.identity(reqwest::Identity::from_pem(own.as_bytes()).expect("an identity")),
        None => builder,
    };
    let client = builder.build().expect("a client");
    let url = format!("https://localhost:{}/ok", address.port());
    Some(client.get(url).send().await.ok()?.status().as_u16())
}

#[tokio::test]
async fn a_renewed_certificate_is_used_without_a_restart() {
    let dir = tempfile::tempdir().expect("a folder");
    let (first, tls) = certified(dir.path());
    let door = door(tls.clone()).await;
    assert_eq!(ask(door.address, &first.pem(), None).await, Some(200));
    // Files that cannot be used change nothing.
    let renewed = tempfile::tempdir().expect("a folder");
    let (second, _) = certified(renewed.path());
    std::fs::write(&tls.certificate, "no certificate").expect("writable");
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(6) {
        assert_eq!(ask(door.address, &first.pem(), None).await, Some(200));
    }
    for name in ["cert.pem", "key.pem"] {
        std::fs::copy(renewed.path().join(name), dir.path().join(name)).expect("copied");
    }
    let renews = async { while ask(door.address, &second.pem(), None).await != Some(200) {} };
    tokio::time::timeout(Duration::from_secs(30), renews).await.expect("the new certificate is used");
    assert_eq!(ask(door.address, &first.pem(), None).await, None);
}

/// Files of an authority, and a certificate that it signed with its key in one text.
fn authority(folder: &Path) -> (std::path::PathBuf, String) {
    let mut params = CertificateParams::new(Vec::new()).expect("parameters");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key");
    let ca = params.self_signed(&key).expect("a certificate");
    let path = folder.join("ca.pem");
    std::fs::write(&path, ca.pem()).expect("writable");
    let issuer = Issuer::new(params, key);
    let own = KeyPair::generate().expect("a key");
    let signed = CertificateParams::new(vec!["node".to_owned()]).expect("parameters");
    let signed = signed.signed_by(&own, &issuer).expect("a certificate");
    (path, format!("{}\n{}", signed.pem(), own.serialize_pem()))
}

#[tokio::test]
async fn clients_show_a_certificate_where_that_is_asked_for() {
    let dir = tempfile::tempdir().expect("a folder");
    let (made, tls) = certified(dir.path());
    let (ca, known) = authority(dir.path());
    let others = tempfile::tempdir().expect("a folder");
    let (_, unknown) = authority(others.path());
    let door = door(TlsConfig { client_ca: Some(ca), ..tls }).await;
    let pem = made.pem();
    assert_eq!(ask(door.address, &pem, Some(&known)).await, Some(200));
    assert_eq!(ask(door.address, &pem, None).await, None, "no certificate");
    assert_eq!(ask(door.address, &pem, Some(&unknown)).await, None, "one of another authority");
}
