//! The age of a server's certificate. Whether it is valid is TLS's business; this is how long it stays so.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use reqwest::Response;
use reqwest::tls::TlsInfo;
use x509_cert::Certificate;
use x509_cert::der::Decode as _;

/// How long the certificate of the server that gave `response` is still valid; none without TLS.
pub fn time_left(response: &Response, now: SystemTime) -> Option<Duration> {
    let info = response.extensions().get::<TlsInfo>()?;
    left(info.peer_certificate()?, now)
}

/// The time until a certificate in DER expires (RFC 5280, section 4.1.2.5).
fn left(certificate: &[u8], now: SystemTime) -> Option<Duration> {
    let certificate = Certificate::from_der(certificate).ok()?;
    let ends = UNIX_EPOCH + certificate.tbs_certificate.validity.not_after.to_unix_duration();
    Some(ends.duration_since(now).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_is_that_of_the_certificate() {
        let key = rcgen::KeyPair::generate().expect("a key");
        let mut parameters = rcgen::CertificateParams::new(vec!["voice.example".into()]).expect("a name");
        parameters.not_after = rcgen::date_time_ymd(2030, 1, 1);
        let certificate = parameters.self_signed(&key).expect("a certificate");
        // 2030-01-01T00:00:00Z.
        let end = UNIX_EPOCH + Duration::from_secs(1_893_456_000);
        let day = Duration::from_secs(86_400);
        assert_eq!(left(certificate.der(), end - 10 * day), Some(10 * day));
        assert_eq!(left(certificate.der(), end + day), Some(Duration::ZERO));
        assert_eq!(left(b"no certificate", end), None);
    }
}
