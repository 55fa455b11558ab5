//! Against servers on loopback that the allow-list opens, and look-ups that lie.

use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;

/// Answers every connection with `reply`, one request each; counts them.
async fn serve(reply: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static) -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let connections = Arc::new(AtomicUsize::new(0));
    let (count, reply) = (connections.clone(), Arc::new(reply));
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            count.fetch_add(1, Ordering::SeqCst);
            let reply = reply.clone();
            tokio::spawn(async move {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    match stream.read_u8().await {
                        Ok(byte) => head.push(byte),
                        Err(_) => return,
                    }
                }
                let _ = stream.write_all(&reply(&String::from_utf8_lossy(&head))).await;
                // An empty reply stands for a server that never answers.
                if reply("").is_empty() {
                    let _ = stream.read_u8().await;
                }
            });
        }
    });
    (port, connections)
}

fn ok(body: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

fn fetcher(allow: &[String]) -> Fetcher {
    Fetcher::new(&Config { allow: allow.to_vec(), ..Config::default() }).unwrap()
}

fn resolving(config: &Config, to: &'static [&'static str]) -> Fetcher {
    let addresses: Vec<IpAddr> = to.iter().map(|ip| ip.parse().unwrap()).collect();
    let look_up: LookUp = Arc::new(move |_| {
        let addresses = addresses.clone();
        Box::pin(async move { Ok(addresses) })
    });
    Fetcher::with_look_up(config, look_up).unwrap()
}

#[tokio::test]
async fn a_user_is_told_to_its_own_host_alone() {
    let seen: Arc<std::sync::Mutex<Vec<String>>> = Arc::default();
    let record = |seen: &Arc<std::sync::Mutex<Vec<String>>>, head: &str| {
        let field = head.lines().find_map(|line| line.strip_prefix("authorization: "));
        let target = head.split(' ').nth(1).unwrap_or_default();
        if !head.is_empty() {
            seen.lock().unwrap().push(format!("{target} {}", field.unwrap_or("none")));
        }
    };
    let there = seen.clone();
    let (other, _) = serve(move |head| {
        record(&there, head);
        ok("sound")
    })
    .await;
    let here = seen.clone();
    let (port, _) = serve(move |head| {
        record(&here, head);
        let to =
            if head.starts_with("GET /a ") { "/b".to_owned() } else { format!("http://localhost:{other}/c") };
        format!("HTTP/1.1 302 Found\r\nlocation: {to}\r\ncontent-length: 0\r\n\r\n").into_bytes()
    })
    .await;
    let fetcher = fetcher(&["localhost".to_owned()]);
    let url = format!("http://us%65r:p%40ss@localhost:{port}/a");
    fetcher.check(&Url::parse(&url).unwrap()).await.unwrap();
    let download = fetcher.fetch(&url).await.unwrap();
    assert_eq!(download.url.as_str(), format!("http://localhost:{other}/c"));
    let mut seen = seen.lock().unwrap().clone();
    seen.dedup();
    // `user:p@ss` in Base64, for both paths of the host that it is for.
    assert_eq!(seen, ["/a Basic dXNlcjpwQHNz", "/b Basic dXNlcjpwQHNz", "/c none"]);
    // A redirect names no user.
    let (port, _) = serve(move |_| {
        let to = format!("http://user:secret@localhost:{other}/c");
        format!("HTTP/1.1 302 Found\r\nlocation: {to}\r\ncontent-length: 0\r\n\r\n").into_bytes()
    })
    .await;
    assert_eq!(fetcher.fetch(&format!("http://localhost:{port}/")).await.unwrap_err(), Error::InvalidUrl);
}

#[tokio::test]
async fn an_allowed_host_is_fetched() {
    let (port, _) = serve(|head| {
        assert!(head.is_empty() || head.starts_with("GET /a.wav?x=1 HTTP/1.1\r\n"), "{head}");
        assert!(!head.contains("accept-encoding"), "{head}");
        ok("sound")
    })
    .await;
    let download = fetcher(&[format!("127.0.0.1:{port}")])
        .fetch(&format!("http://127.0.0.1:{port}/a.wav?x=1#here"))
        .await
        .unwrap();
    assert_eq!(&download.bytes[..], b"sound");
}

#[tokio::test]
async fn loopback_is_refused_by_default_and_never_connected_to() {
    let (port, connections) = serve(|_| ok("secret")).await;
    for host in ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "localhost.", "2130706433"] {
        let result = fetcher(&[]).fetch(&format!("http://{host}:{port}/")).await;
        assert_eq!(result.unwrap_err(), Error::NotRoutable, "{host}");
    }
    assert_eq!(fetcher(&[]).fetch("http://localhost/").await.unwrap_err(), Error::NotRoutable);
    assert_eq!(connections.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_name_with_a_private_address_among_public_ones_is_refused() {
    for addresses in [&["93.184.216.34", "127.0.0.1"][..], &["10.0.0.1"][..], &["::1"][..]] {
        let fetcher = resolving(&Config::default(), addresses);
        assert_eq!(fetcher.fetch("http://two-faced.example/").await.unwrap_err(), Error::NotRoutable);
    }
    let nowhere = resolving(&Config::default(), &[]);
    assert_eq!(nowhere.fetch("http://nowhere.example/").await.unwrap_err(), Error::Unresolvable);
}

#[tokio::test]
async fn a_name_is_looked_up_once_and_its_address_used() {
    // The first answer is allowed, any later one is not: rebinding would meet the second.
    let (port, _) = serve(|_| ok("sound")).await;
    let config = Config { allow: vec![format!("rebinding.example:{port}")], ..Config::default() };
    let look_ups = Arc::new(AtomicUsize::new(0));
    let counted = look_ups.clone();
    let look_up: LookUp = Arc::new(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        Box::pin(async { Ok(vec![IpAddr::from([127, 0, 0, 1])]) })
    });
    let fetcher = Fetcher::with_look_up(&config, look_up).unwrap();
    let download = fetcher.fetch(&format!("http://rebinding.example:{port}/")).await.unwrap();
    assert_eq!(&download.bytes[..], b"sound");
    assert_eq!(look_ups.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn redirects_are_followed_and_each_is_judged() {
    let (inside, connections) = serve(|_| ok("secret")).await;
    let (port, _) = serve(move |head| match head.split(' ').nth(1) {
        Some("/start") => b"HTTP/1.1 302 Found\r\nlocation: /end\r\ncontent-length: 0\r\n\r\n".to_vec(),
        Some("/loop") => b"HTTP/1.1 307 T\r\nlocation: /loop\r\ncontent-length: 0\r\n\r\n".to_vec(),
        Some("/blank") => b"HTTP/1.1 301 M\r\ncontent-length: 0\r\n\r\n".to_vec(),
        Some("/inside") => {
            format!("HTTP/1.1 302 F\r\nlocation: http://127.0.0.1:{inside}/\r\ncontent-length: 0\r\n\r\n")
                .into_bytes()
        }
        Some("/file") => {
            b"HTTP/1.1 302 F\r\nlocation: file:///etc/passwd\r\ncontent-length: 0\r\n\r\n".to_vec()
        }
        _ => ok("end"),
    })
    .await;
    let fetcher = fetcher(&[format!("127.0.0.1:{port}")]);
    let get = async |path: &str| fetcher.fetch(&format!("http://127.0.0.1:{port}{path}")).await;
    assert_eq!(&get("/start").await.unwrap().bytes[..], b"end");
    assert_eq!(get("/loop").await.unwrap_err(), Error::TooManyRedirects);
    assert_eq!(get("/blank").await.unwrap_err(), Error::MissingLocation);
    assert_eq!(get("/inside").await.unwrap_err(), Error::NotRoutable);
    assert_eq!(get("/file").await.unwrap_err(), Error::InvalidUrl);
    assert_eq!(connections.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn more_bytes_than_the_limit_are_refused_announced_or_not() {
    let (port, _) = serve(|head| match head.split(' ').nth(1) {
        Some("/announced") => ok(&"x".repeat(101)),
        Some("/fits") => ok(&"x".repeat(100)),
        _ => b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n40\r\n0123456789012345678901234567890123456789012345678901234567890123\r\n40\r\n0123456789012345678901234567890123456789012345678901234567890123\r\n0\r\n\r\n".to_vec(),
    })
    .await;
    let allow = vec!["127.0.0.0/8".to_owned()];
    let fetcher = Fetcher::new(&Config { allow, max_bytes: 100, ..Config::default() }).unwrap();
    let get = async |path: &str| fetcher.fetch(&format!("http://127.0.0.1:{port}{path}")).await;
    assert_eq!(get("/announced").await.unwrap_err(), Error::TooLarge { limit: 100 });
    assert_eq!(get("/chunked").await.unwrap_err(), Error::TooLarge { limit: 100 });
    assert_eq!(get("/fits").await.unwrap().bytes.len(), 100);
}

#[tokio::test]
async fn failures_of_the_remote_look_alike() {
    let (port, _) = serve(|head| match head.split(' ').nth(1) {
        Some("/404") => b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_vec(),
        Some("/500") => b"HTTP/1.1 500 Oops\r\ncontent-length: 0\r\n\r\n".to_vec(),
        Some("/206") => b"HTTP/1.1 206 Partial\r\ncontent-length: 1\r\n\r\nx".to_vec(),
        Some("/gzip") => b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 1\r\n\r\nx".to_vec(),
        Some("/cut") => b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nx".to_vec(),
        _ => b"\x00\x01 nonsense\r\n\r\n".to_vec(),
    })
    .await;
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let fetcher = fetcher(&["127.0.0.1".to_owned()]);
    let get = async |port: u16, path: &str| fetcher.fetch(&format!("http://127.0.0.1:{port}{path}")).await;
    assert_eq!(get(port, "/404").await.unwrap_err(), Error::ClientError(404));
    for path in ["/500", "/206", "/gzip", "/cut", "/nonsense"] {
        assert_eq!(get(port, path).await.unwrap_err(), Error::Failed, "{path}");
    }
    assert_eq!(get(closed, "/").await.unwrap_err(), Error::Failed);
}

/// Answers with the head of a large file, and then with a byte of it now and then.
async fn drips(every: Duration) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let head = b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n";
                let mut written = stream.write_all(head).await;
                while written.is_ok() {
                    tokio::time::sleep(every).await;
                    written = stream.write_all(b"x").await;
                }
            });
        }
    });
    port
}

/// Whether a URL at `port` is given up long before its whole time is over.
async fn is_given_up(config: Config, port: u16) -> bool {
    let config = Config { allow: vec!["127.0.0.1".to_owned()], total_timeout_ms: 3_600_000, ..config };
    let fetcher = Fetcher::new(&config).unwrap();
    let url = format!("http://127.0.0.1:{port}/");
    let fetched = tokio::time::timeout(Duration::from_secs(60), fetcher.fetch(&url)).await;
    fetched.is_ok_and(|result| matches!(result, Err(Error::Failed)))
}

#[tokio::test]
async fn a_server_that_drips_is_given_up_after_its_grace() {
    let slow = Config { grace_ms: 100, bytes_per_second_min: 4096, ..Config::default() };
    assert!(is_given_up(slow, drips(Duration::from_millis(20)).await).await);
    // Where any rate will do, it must go on at least.
    let patient = Config { idle_timeout_ms: 200, bytes_per_second_min: 0, ..Config::default() };
    assert!(is_given_up(patient, drips(Duration::from_secs(3600)).await).await);
}

#[tokio::test]
async fn a_server_that_takes_a_request_and_says_nothing_is_given_up() {
    let (port, _) = serve(|_| Vec::new()).await;
    let config = Config { connect_timeout_ms: 50, idle_timeout_ms: 50, ..Config::default() };
    assert!(is_given_up(config, port).await);
}

#[tokio::test]
async fn a_name_that_leads_nowhere_reads_like_one_that_leads_inside() {
    let inside = resolving(&Config::default(), &["10.0.0.1"]);
    let nowhere = resolving(&Config::default(), &[]);
    let broken = {
        let look_up: LookUp = Arc::new(|_| Box::pin(async { Err(std::io::ErrorKind::NotFound.into()) }));
        Fetcher::with_look_up(&Config::default(), look_up).unwrap()
    };
    let url = Url::parse("http://db.internal/").unwrap();
    let mut told = Vec::new();
    for fetcher in [inside, nowhere, broken] {
        told.push(fetcher.fetch(url.as_str()).await.unwrap_err().to_string());
        told.push(fetcher.check(&url).await.unwrap_err().to_string());
    }
    told.dedup();
    assert_eq!(told, ["URL for media download must be publicly routable."]);
}

#[tokio::test]
async fn a_silent_server_is_given_up() {
    let (port, _) = serve(|_| Vec::new()).await;
    let config = Config { allow: vec!["127.0.0.1".to_owned()], total_timeout_ms: 50, ..Config::default() };
    let result = Fetcher::new(&config).unwrap().fetch(&format!("http://127.0.0.1:{port}/")).await;
    assert_eq!(result.unwrap_err(), Error::Failed);
}
