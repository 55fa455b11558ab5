//! The table of hosts that were used to reach where nobody should, and a control set that must pass.

use std::collections::HashSet;

use proptest::prelude::*;

use super::*;

fn judge(url: &str, allow: &AllowList) -> Result<Reach, Error> {
    parse(url).and_then(|url| check(&url, &elsewhere(allow)))
}

/// On a machine that has none of the addresses that are asked for here.
fn elsewhere(allow: &AllowList) -> Reachable {
    Reachable::new(allow.clone(), Own::read_by(|| Ok(HashSet::new())))
}

#[test]
fn public_addresses_pass() {
    for address in [
        "1.1.1.1",
        "8.8.8.8",
        "9.255.255.255",
        "11.0.0.0",
        "100.63.255.255",
        "100.128.0.0",
        "126.255.255.255",
        "128.0.0.1",
        "169.253.255.255",
        "169.255.0.0",
        "172.15.255.255",
        "172.32.0.0",
        "191.255.255.255",
        "192.0.1.0",
        "192.167.255.255",
        "192.169.0.0",
        "198.17.255.255",
        "198.20.0.0",
        "223.255.255.255",
        "2606:4700:4700::1111",
        "2001:4860:4860::8888",
        "2a00:1450:4001:830::200e",
        "::ffff:8.8.8.8",
        "64:ff9b::8.8.8.8",
        "2002:0808:0808::1",
    ] {
        assert!(is_globally_routable(address.parse().unwrap()), "{address}");
    }
}

#[test]
fn other_addresses_do_not() {
    for address in [
        "0.0.0.0",
        "0.1.2.3",
        "10.0.0.0",
        "10.255.255.255",
        "100.64.0.0",
        "100.127.255.255",
        "127.0.0.1",
        "127.255.255.254",
        "169.254.0.1",
        "169.254.169.254",
        "172.16.0.0",
        "172.31.255.255",
        "192.0.0.8",
        "192.0.0.170",
        "192.0.2.1",
        "192.31.196.1",
        "192.52.193.1",
        "192.88.99.1",
        "192.168.0.1",
        "192.168.255.255",
        "198.18.0.1",
        "198.19.255.255",
        "198.51.100.7",
        "203.0.113.9",
        "224.0.0.1",
        "239.255.255.250",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::7f00:1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "::ffff:169.254.169.254",
        "64:ff9b::127.0.0.1",
        "64:ff9b::10.1.2.3",
        "64:ff9b:1::1",
        "100::1",
        "2001::1",
        "2001:0:7f00:1::",
        "2001:2::1",
        "2001:10::1",
        "2001:20::1",
        "2001:db8::1",
        "2002:7f00:1::",
        "2002:a00:1::1",
        "2002:c0a8:101::",
        "2620:4f:8000::1",
        "3fff::1",
        "4000::1",
        "5f00::1",
        "fc00::1",
        "fd12:3456:789a::1",
        "fe80::1",
        "fec0::1",
        "ff02::1",
        "fd00:ec2::254",
    ] {
        assert!(!is_globally_routable(address.parse().unwrap()), "{address}");
    }
}

#[test]
fn urls_that_reach_inside_are_refused() {
    let none = AllowList::default();
    for url in [
        "http://127.0.0.1/",
        "http://127.1/",
        "http://2130706433/",
        "http://0x7f000001/",
        "http://0x7f.1/",
        "http://0177.0.0.1/",
        "http://017700000001/",
        "http://127.0.0.1./",
        "http://0/",
        "http://0.0.0.0:80/",
        "http://[::]/",
        "http://[::1]/",
        "http://[0:0:0:0:0:0:0:1]/",
        "http://[::127.0.0.1]/",
        "http://[::ffff:127.0.0.1]/",
        "http://[::ffff:7f00:1]/",
        "http://[64:ff9b::7f00:1]/",
        "http://[2002:7f00:1::]/",
        "http://[fe80::1]/",
        "http://[fd00::1]/",
        "http://169.254.169.254/latest/meta-data/",
        "http://2852039166/latest/meta-data/",
        "http://0xa9fea9fe/",
        "http://0251.0376.0251.0376/",
        "http://10.0.0.1/",
        "http://172.16.0.1/",
        "http://192.168.1.1/",
        "http://100.100.100.200/",
        "http:\\\\127.0.0.1\\",
        "http:127.0.0.1",
        "http:/127.0.0.1",
        "http://１２７.０.０.１/",
        "http://127。0。0。1/",
        "http://①②⑦.⓪.⓪.①/",
        "http://example.com:22/",
        "http://example.com:6379/",
        "http://example.com:25/",
        "https://8.8.8.8:53/",
    ] {
        assert_eq!(judge(url, &none), Err(Error::NotRoutable), "{url}");
    }
}

#[test]
fn urls_of_another_kind_are_refused() {
    let none = AllowList::default();
    let long = format!("http://example.com/{}", "a".repeat(URL_BYTES_MAX));
    for url in [
        "",
        "example.com/a.wav",
        "//example.com/a.wav",
        "/a.wav",
        "file:///etc/passwd",
        "ftp://example.com/a.wav",
        "gopher://127.0.0.1:6379/_FLUSHALL",
        "data:audio/wav;base64,AAAA",
        "dict://example.com:11211/",
        "javascript:alert(1)",
        "http://",
        "http:///",
        "http://user@example.com/",
        "http://user:secret@example.com/",
        "http://:secret@example.com/",
        "http://8.8.8.8@127.0.0.1/",
        "http://[::1/",
        "http://exa mple.com/",
        "http://example.com:99999/",
        "http://1.2.3.4.5/",
        "http://[fe80::1%25eth0]/",
        long.as_str(),
    ] {
        assert_eq!(judge(url, &none), Err(Error::InvalidUrl), "{url}");
    }
}

#[test]
fn urls_of_the_public_pass() {
    let none = AllowList::default();
    for url in [
        "http://example.com/a.wav",
        "https://example.com/a.wav?signature=a%20b#t=3",
        "https://EXAMPLE.com:443/",
        "http://example.com:8080/a",
        "https://example.com:8443/a",
        "http://8.8.8.8/a.mp3",
        "http://[2606:4700:4700::1111]/a.mp3",
        "https://bücher.example/ü.ogg",
        "  https://example.com/a.wav\n",
        // Names are judged by what they resolve to, but those under localhost.
        "http://metadata.google.internal/",
    ] {
        assert_eq!(judge(url, &none), Ok(Reach::Public), "{url}");
    }
}

#[test]
fn one_address_of_the_wrong_kind_spoils_a_name() {
    let none = elsewhere(&AllowList::default());
    let ip = |text: &str| text.parse::<IpAddr>().unwrap();
    assert_eq!(may_connect(&[ip("8.8.8.8"), ip("2606:4700::1")], Reach::Public, &none), Ok(()));
    assert_eq!(may_connect(&[ip("8.8.8.8"), ip("127.0.0.1")], Reach::Public, &none), Err(Error::NotRoutable));
    assert_eq!(may_connect(&[ip("::1")], Reach::Public, &none), Err(Error::NotRoutable));
    assert_eq!(may_connect(&[], Reach::Public, &none), Err(Error::Unresolvable));
}

#[test]
fn the_allow_list_opens_what_it_names_and_no_more() {
    let allow =
        AllowList::parse(&["Media.Internal", "localhost:9000", "10.1.0.0/16", "::1", "127.0.0.1:80", " "])
            .unwrap();
    for url in [
        "http://media.internal/a",
        "http://media.internal.:12345/a",
        "http://localhost:9000/a",
        "http://10.1.2.3/a",
        "http://10.1.2.3:5000/a",
        "http://[::1]:7000/a",
        "http://127.0.0.1/a",
        "http://[::ffff:10.1.2.3]/a",
    ] {
        assert!(judge(url, &allow).is_ok(), "{url}");
    }
    for url in ["http://10.2.0.1/a", "http://127.0.0.1:8080/a", "http://127.0.0.2/a", "http://[::2]/a"] {
        assert_eq!(judge(url, &allow), Err(Error::NotRoutable), "{url}");
    }
    assert_eq!(judge("http://localhost/a", &allow), Err(Error::NotRoutable));
    // A name on a port that is not the public's may lead into a listed network, and nowhere else.
    assert_eq!(judge("http://media.example:9000/a", &allow), Ok(Reach::Listed));
    let allow = elsewhere(&allow);
    assert_eq!(may_connect(&["10.1.9.9".parse().unwrap()], Reach::Listed, &allow), Ok(()));
    assert_eq!(may_connect(&["8.8.8.8".parse().unwrap()], Reach::Listed, &allow), Err(Error::NotRoutable));
    assert_eq!(may_connect(&["10.1.9.9".parse().unwrap()], Reach::Public, &allow), Ok(()));
    assert_eq!(may_connect(&["10.2.9.9".parse().unwrap()], Reach::Public, &allow), Err(Error::NotRoutable));
}

#[test]
fn this_machines_own_addresses_are_not_public() {
    let own =
        || Own::read_by(|| Ok(HashSet::from(["8.8.8.8", "2606:4700::1"].map(|ip| ip.parse().unwrap()))));
    let judge = |url: &str, reachable: &Reachable| parse(url).and_then(|url| check(&url, reachable));
    let ip = |text: &str| text.parse::<IpAddr>().unwrap();
    let reachable = Reachable::new(AllowList::default(), own());
    for host in ["8.8.8.8", "134744072", "[::ffff:8.8.8.8]", "[64:ff9b::808:808]", "[2606:4700::1]"] {
        assert_eq!(judge(&format!("http://{host}/"), &reachable), Err(Error::NotRoutable), "{host}");
    }
    assert_eq!(judge("http://1.1.1.1/", &reachable), Ok(Reach::Public));
    assert_eq!(
        may_connect(&[ip("1.1.1.1"), ip("8.8.8.8")], Reach::Public, &reachable),
        Err(Error::NotRoutable)
    );
    // An operator who lists them means it.
    let listing = Reachable::new(AllowList::parse(&["8.8.8.8"]).unwrap(), own());
    assert_eq!(judge("http://8.8.8.8/", &listing), Ok(Reach::Listed));
    assert_eq!(may_connect(&[ip("8.8.8.8")], Reach::Public, &listing), Ok(()));
}

#[test]
fn a_listed_host_opens_neither_another_name_nor_another_port() {
    let allow = AllowList::parse(&["media.internal", "localhost:9000"]).unwrap();
    for url in
        ["http://media.internal.example.com:12345/", "http://localhost:9001/a", "http://x.media.internal:1/"]
    {
        assert_eq!(judge(url, &allow), Err(Error::NotRoutable), "{url}");
    }
}

#[test]
fn entries_that_mean_nothing_are_errors() {
    for entry in ["10.0.0.0/33", "http://x/", "a b", "x:99999", "user@host", "host/path"] {
        assert!(AllowList::parse(&[entry]).is_err(), "{entry}");
    }
}

#[test]
fn redirects_do_not_give_up_https() {
    let https = parse("https://example.com/a/b").unwrap();
    let http = parse("http://example.com/a/b").unwrap();
    assert_eq!(redirect(&https, "../c").unwrap().as_str(), "https://example.com/c");
    assert_eq!(redirect(&http, "https://other.example/").unwrap().as_str(), "https://other.example/");
    assert_eq!(redirect(&https, "http://example.com/"), Err(Error::NotRoutable));
    assert_eq!(redirect(&http, "file:///etc/passwd"), Err(Error::InvalidUrl));
    assert_eq!(redirect(&http, &"x".repeat(3000)), Err(Error::InvalidUrl));
}

proptest! {
    /// However IPv6 wraps an IPv4 address, the verdict is that of the address within.
    #[test]
    fn a_wrapped_address_is_judged_by_what_it_wraps(bits in any::<u32>()) {
        let v4 = Ipv4Addr::from_bits(bits);
        let verdict = is_globally_routable(v4.into());
        let [a, b, c, d] = v4.octets();
        let (high, low) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        for v6 in [
            v4.to_ipv6_mapped(),
            Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low),
            Ipv6Addr::new(0x2002, high, low, 0, 0, 0, 0, 1),
        ] {
            prop_assert_eq!(is_globally_routable(v6.into()), verdict, "{} in {}", v4, v6);
        }
    }

    /// An address written as one number, in any base, is the same address.
    #[test]
    fn spellings_of_an_address_share_its_verdict(bits in any::<u32>()) {
        let none = AllowList::default();
        let v4 = Ipv4Addr::from_bits(bits);
        let verdict = judge(&format!("http://{v4}/"), &none);
        for host in [format!("{bits}"), format!("{bits:#x}"), format!("0{bits:o}"), format!("[{}]", v4.to_ipv6_mapped())] {
            prop_assert_eq!(judge(&format!("http://{host}/"), &none), verdict.clone(), "{}", host);
        }
    }

    /// Nothing outside 2000::/3 passes unless it wraps a public IPv4 address.
    #[test]
    fn only_global_unicast_passes(bits in any::<u128>()) {
        let v6 = Ipv6Addr::from_bits(bits);
        if is_globally_routable(v6.into()) && embedded_v4(v6).is_none() {
            prop_assert_eq!(bits >> 125, 1);
        }
    }

    #[test]
    fn any_text_is_answered(text in any::<String>()) {
        let _ = judge(&text, &AllowList::default());
        let _ = judge(&format!("http://{text}"), &AllowList::default());
        let _ = AllowList::parse(&[text]);
    }
}
