//! Cryptography for str0m: certificates, DTLS (by dimpl) and the ciphers of SRTP (RFC 3711, RFC 7714). The provider
//! that comes with str0m would add a second TLS library.

use std::fmt;
use std::sync::{Arc, LazyLock};
use std::time::Instant;

use aes::cipher::consts::U16;
use aes::cipher::{BlockEncrypt, InvalidLength, KeyInit};
use aes::{Aes128, Aes256};
use aes_gcm::aead::{Aead, Payload};
use aes_gcm::{Aes128Gcm, Aes256Gcm, Nonce};
use hmac::{Hmac, Mac as _};
use rcgen::{CertificateParams, DnType, KeyPair, PKCS_ECDSA_P256_SHA256};
use sha1::Sha1;
use sha2::{Digest as _, Sha256};
use str0m::config::{CryptoProvider, DtlsCert, DtlsVersion};
use str0m::crypto::dtls::{DtlsImplError, DtlsInstance, DtlsOutput, DtlsProvider, ProtocolVersion};
use str0m::crypto::{
    AeadAes128GcmCipher, AeadAes256GcmCipher, Aes128CmSha1_80Cipher, CryptoError, Sha1HmacProvider,
    Sha256Provider, SrtpProvider, SupportedAeadAes128Gcm, SupportedAeadAes256Gcm, SupportedAes128CmSha1_80,
};

pub fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| {
        Arc::new(CryptoProvider {
            srtp_provider: &Ours,
            sha1_hmac_provider: &Ours,
            sha256_provider: &Ours,
            dtls_provider: &Ours,
        })
    });
    PROVIDER.clone()
}

#[derive(Debug)]
struct Ours;

impl Sha256Provider for Ours {
    fn sha256(&self, data: &[u8]) -> [u8; 32] {
        Sha256::digest(data).into()
    }
}

impl Sha1HmacProvider for Ours {
    fn sha1_hmac(&self, key: &[u8], payloads: &[&[u8]]) -> [u8; 20] {
        let mut mac = <Hmac<Sha1> as hmac::KeyInit>::new_from_slice(key)
            .expect("HMAC takes a key of any length; this is a bug");
        for payload in payloads {
            mac.update(payload);
        }
        mac.finalize().into_bytes().into()
    }
}

impl DtlsProvider for Ours {
    fn generate_certificate(&self) -> Option<DtlsCert> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).ok()?;
        let mut params = CertificateParams::default();
        // WebRTC looks at the fingerprint alone.
        params.distinguished_name.push(DnType::CommonName, "WebRTC");
        let certificate = params.self_signed(&key).ok()?;
        Some(DtlsCert { certificate: certificate.der().to_vec(), private_key: key.serialize_der() })
    }

    fn new_dtls(
        &self,
        cert: &DtlsCert,
        now: Instant,
        dtls_version: DtlsVersion,
        mtu: Option<usize>,
    ) -> Result<Box<dyn DtlsInstance>, CryptoError> {
        // ICE has found out that the peer is where it says.
        let mut config = dimpl::Config::builder().use_server_cookie(false);
        if let Some(mtu) = mtu {
            config = config.mtu(mtu);
        }
        let config = config.build().map_err(|error| CryptoError::Other(error.to_string()))?;
        let (config, cert) = (Arc::new(config), cert.clone());
        let dtls = match dtls_version {
            DtlsVersion::Dtls13 => dimpl::Dtls::new_13(config, cert, now),
            DtlsVersion::Auto => dimpl::Dtls::new_auto(config, cert, now),
            _ => dimpl::Dtls::new_12(config, cert, now),
        };
        Ok(Box::new(Dtls(dtls)))
    }
}

struct Dtls(dimpl::Dtls);

impl fmt::Debug for Dtls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Dtls")
    }
}

impl DtlsInstance for Dtls {
    fn set_active(&mut self, active: bool) {
        self.0.set_active(active);
    }

    fn handle_packet(&mut self, packet: &[u8]) -> Result<(), DtlsImplError> {
        self.0.handle_packet(packet)
    }

    fn poll_output<'a>(&mut self, buf: &'a mut [u8]) -> DtlsOutput<'a> {
        self.0.poll_output(buf)
    }

    fn handle_timeout(&mut self, now: Instant) -> Result<(), DtlsImplError> {
        self.0.handle_timeout(now)
    }

    fn send_application_data(&mut self, data: &[u8]) -> Result<(), DtlsImplError> {
        self.0.send_application_data(data)
    }

    fn is_active(&self) -> bool {
        self.0.is_active()
    }

    fn protocol_version(&self) -> Option<ProtocolVersion> {
        self.0.protocol_version()
    }

    fn is_closing(&self) -> bool {
        self.0.is_closing()
    }

    fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    fn close(&mut self) -> Result<(), DtlsImplError> {
        self.0.close()
    }
}

impl SrtpProvider for Ours {
    fn aes_128_cm_sha1_80(&self) -> &'static dyn SupportedAes128CmSha1_80 {
        &Ours
    }

    fn aead_aes_128_gcm(&self) -> &'static dyn SupportedAeadAes128Gcm {
        &Ours
    }

    fn aead_aes_256_gcm(&self) -> &'static dyn SupportedAeadAes256Gcm {
        &Ours
    }

    fn srtp_aes_128_ecb_round(&self, key: &[u8], input: &[u8], output: &mut [u8]) {
        round(Aes128::new_from_slice(key), input, output);
    }

    fn srtp_aes_256_ecb_round(&self, key: &[u8], input: &[u8], output: &mut [u8]) {
        round(Aes256::new_from_slice(key), input, output);
    }
}

/// One block. `output` has room for two because some libraries pad; the second is ignored.
fn round<C>(cipher: Result<C, InvalidLength>, input: &[u8], output: &mut [u8])
where
    C: BlockEncrypt<BlockSize = U16>,
{
    if let (Ok(cipher), Some((input, _)), Some((output, _))) =
        (cipher, input.split_first_chunk::<16>(), output.split_first_chunk_mut::<16>())
    {
        let mut block = (*input).into();
        cipher.encrypt_block(&mut block);
        *output = block.into();
    }
}

/// AES in counter mode (RFC 3711, 4.1.1).
struct Counter(Aes128);

impl fmt::Debug for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Counter")
    }
}

impl SupportedAes128CmSha1_80 for Ours {
    fn create_cipher(&self, key: [u8; 16], _encrypt: bool) -> Box<dyn Aes128CmSha1_80Cipher> {
        Box::new(Counter(Aes128::new(&key.into())))
    }
}

impl Aes128CmSha1_80Cipher for Counter {
    fn encrypt(&mut self, iv: &[u8; 16], input: &[u8], output: &mut [u8]) -> Result<(), CryptoError> {
        let first = u128::from_be_bytes(*iv);
        for ((block, input), output) in (0..).zip(input.chunks(16)).zip(output.chunks_mut(16)) {
            let mut key = first.wrapping_add(block).to_be_bytes().into();
            self.0.encrypt_block(&mut key);
            for ((output, input), key) in output.iter_mut().zip(input).zip(key) {
                *output = input ^ key;
            }
        }
        Ok(())
    }

    fn decrypt(&mut self, iv: &[u8; 16], input: &[u8], output: &mut [u8]) -> Result<(), CryptoError> {
        self.encrypt(iv, input, output)
    }
}

/// AES-GCM (RFC 7714); the tag follows the text.
struct Gcm<C>(C);

impl<C> fmt::Debug for Gcm<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Gcm")
    }
}

impl<C: Aead<NonceSize = aes_gcm::aead::consts::U12>> Gcm<C> {
    fn seal(&self, iv: &[u8; 12], aad: &[u8], input: &[u8], output: &mut [u8]) -> Result<(), CryptoError> {
        let sealed = self.0.encrypt(Nonce::from_slice(iv), Payload { msg: input, aad });
        put(sealed, output).map(|_| ())
    }

    fn open(
        &self,
        iv: &[u8; 12],
        aads: &[&[u8]],
        input: &[u8],
        output: &mut [u8],
    ) -> Result<usize, CryptoError> {
        let aad = aads.concat();
        put(self.0.decrypt(Nonce::from_slice(iv), Payload { msg: input, aad: &aad }), output)
    }
}

fn put(text: Result<Vec<u8>, aes_gcm::Error>, output: &mut [u8]) -> Result<usize, CryptoError> {
    let text = text.map_err(|error| CryptoError::Other(error.to_string()))?;
    let room = output.get_mut(..text.len()).ok_or_else(|| CryptoError::Other("no room".into()))?;
    room.copy_from_slice(&text);
    Ok(text.len())
}

impl SupportedAeadAes128Gcm for Ours {
    fn create_cipher(&self, key: [u8; 16], _encrypt: bool) -> Box<dyn AeadAes128GcmCipher> {
        Box::new(Gcm(Aes128Gcm::new(&key.into())))
    }
}

impl SupportedAeadAes256Gcm for Ours {
    fn create_cipher(&self, key: [u8; 32], _encrypt: bool) -> Box<dyn AeadAes256GcmCipher> {
        Box::new(Gcm(Aes256Gcm::new(&key.into())))
    }
}

/// str0m has one trait per key length.
macro_rules! gcm_cipher {
    ($cipher:ident for $of:ident) => {
        impl $cipher for Gcm<$of> {
            fn encrypt(
                &mut self,
                iv: &[u8; 12],
                aad: &[u8],
                input: &[u8],
                output: &mut [u8],
            ) -> Result<(), CryptoError> {
                self.seal(iv, aad, input, output)
            }

            fn decrypt(
                &mut self,
                iv: &[u8; 12],
                aads: &[&[u8]],
                input: &[u8],
                output: &mut [u8],
            ) -> Result<usize, CryptoError> {
                self.open(iv, aads, input, output)
            }
        }
    };
}

gcm_cipher!(AeadAes128GcmCipher for Aes128Gcm);
gcm_cipher!(AeadAes256GcmCipher for Aes256Gcm);

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes<const N: usize>(hex: &str) -> [u8; N] {
        data_encoding::HEXLOWER.decode(hex.as_bytes()).unwrap().try_into().unwrap()
    }

    /// The key stream of RFC 3711, B.2.
    #[test]
    fn counter_mode_is_that_of_the_standard() {
        let mut cipher =
            SupportedAes128CmSha1_80::create_cipher(&Ours, bytes("2b7e151628aed2a6abf7158809cf4f3c"), true);
        let iv = bytes("f0f1f2f3f4f5f6f7f8f9fafbfcfd0000");
        let mut stream = [0; 40];
        cipher.encrypt(&iv, &[0; 40], &mut stream).unwrap();
        assert_eq!(stream[..16], bytes::<16>("e03ead0935c95e80e166b16dd92b4eb4"));
        assert_eq!(stream[16..32], bytes::<16>("d23513162b02d0f72a43a2fe4a5f97ab"));
        assert_eq!(stream[32..], bytes::<8>("41e95b3bb0a2e8dd"));
    }

    /// The packet of RFC 7714, 16.1.1.
    #[test]
    fn gcm_is_that_of_the_standard_and_refuses_what_was_changed() {
        let key = bytes("000102030405060708090a0b0c0d0e0f");
        let mut cipher = SupportedAeadAes128Gcm::create_cipher(&Ours, key, true);
        let iv = bytes("51753c6580c2726f20718414");
        let aad = bytes::<12>("8040f17b8041f8d35501a0b2");
        let text = b"Gallia est omnis divisa in partes tres";
        let mut sealed = [0; 54];
        cipher.encrypt(&iv, &aad, text, &mut sealed).unwrap();
        assert_eq!(sealed[..8], bytes::<8>("f24de3a3fb34de6c"));
        assert_eq!(sealed[38..], bytes::<16>("899d7f27beb16a9152cf765ee4390cce"));
        let mut opened = [0; 38];
        assert_eq!(cipher.decrypt(&iv, &[&aad[..4], &aad[4..]], &sealed, &mut opened).unwrap(), 38);
        assert_eq!(&opened, text);
        sealed[0] ^= 1;
        assert!(cipher.decrypt(&iv, &[&aad], &sealed, &mut opened).is_err());
    }
}
