//! Ids in the form of the wire format, which has UUIDs for keys and organisations: made from this program's own
//! ids, and the same each time.

use uuid::Uuid;

use super::secret::KeyId;

/// A random namespace (RFC 9562, section 5.5).
const NAMESPACE: Uuid = Uuid::from_u128(0x6f2c_1c4e_9b0d_4e57_a3a1_58d9_0f7e_21b4);

/// The id of an organisation, as `project_id`.
pub fn of_organisation(tenant: u64) -> Uuid {
    Uuid::new_v5(&NAMESPACE, format!("organisation {tenant}").as_bytes())
}

/// The id of a key, as `api_key_id`.
pub fn of_key(key: &KeyId) -> Uuid {
    Uuid::new_v5(&NAMESPACE, format!("key {key}").as_bytes())
}
