//! Checks of the LiveKit server: its address and key, and a connection for media into a room made for it.

use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};

use super::check::Check;
use super::clock::Clocks;
use crate::config::Config;
use crate::outbound;
use crate::room::livekit::LiveKit;
use crate::room::{self, Kind, NoSeat, Reception, Relay, RoomEnd, RoomLimits, Seat};

const NAME: &str = "livekit";
/// Joining, and finding a way for media: as long as an agent waits.
const READY_WAIT: Duration = Duration::from_secs(20);
const DELETE_WAIT: Duration = Duration::from_secs(1);
const ASK_TIMEOUT: Duration = Duration::from_secs(5);
const LIMITS: RoomLimits = RoomLimits { idle_seconds: 30, rejoin_seconds: 1, participants_max: 2 };

pub async fn all(config: &Config, clocks: &mut Clocks) -> Vec<Check> {
    let livekit = match LiveKit::open(&config.sts.livekit) {
        Ok(None) => return vec![Check::ok(NAME, "not set: browsers join rooms of this server")],
        Ok(Some(livekit)) => livekit,
        Err(error) => return vec![Check::failed(NAME, error.to_string(), "set `sts.livekit`")],
    };
    look_at_the_clock(config, clocks).await;
    let room = format!("doctor-{:016x}", rand::random::<u64>());
    // Lists rooms, which needs a valid key.
    if let Err(error) = livekit.has_room(&room).await {
        let text = format!("{:#}", anyhow::Error::new(error));
        let mend = if text.contains("refused a call") {
            "set `sts.livekit.api_key` and `sts.livekit.api_secret` to a pair that the server knows"
        } else {
            "start it, let this machine reach it, or set `sts.livekit.url`"
        };
        return vec![Check::failed(NAME, text, mend)];
    }
    let (direct, relayed) = tokio::join!(way(config, Relay::Off), way(config, Relay::Only));
    vec![
        Check::ok(NAME, "reached, and the key may list rooms"),
        media(config.sts.livekit.relay, direct, relayed),
    ]
}

/// A way for media: how long it took to find it, or why there is none.
type Way = Result<Duration, String>;

/// Weighs the ways: straight to the server (UDP or TCP), and over a relay that it names (TURN).
fn media(wanted: Relay, direct: Way, relayed: Way) -> Check {
    const NAME: &str = "livekit media";
    const PORTS: &str = "let this machine reach the server's media ports: by default UDP 50000 to 60000 or TCP 7881 \
        (`rtc.port_range_start`, `rtc.tcp_port`), at the address that it announces (`rtc.node_ip`)";
    const TURN: &str =
        "set up TURN at the server (`turn.enabled` or `rtc.turn_servers`, best over TLS on port 443)";
    let ms = |took: Duration| took.as_millis();
    match (wanted, direct, relayed) {
        (Relay::Auto | Relay::Off, Ok(direct), Ok(relayed)) => Check::ok(
            NAME,
            format!("by ICE within {} ms straight, within {} ms over TURN", ms(direct), ms(relayed)),
        ),
        (Relay::Auto | Relay::Off, Ok(direct), Err(_)) => Check::ok(
            NAME,
            format!(
                "by ICE within {} ms straight; not over TURN, which callers behind strict firewalls need",
                ms(direct)
            ),
        ),
        (Relay::Auto, Err(error), Ok(relayed)) => Check::warning(
            NAME,
            format!("over TURN alone, within {} ms; straight: {error}", ms(relayed)),
            PORTS,
        ),
        (Relay::Only, _, Ok(relayed)) => {
            Check::ok(NAME, format!("over TURN within {} ms, as `sts.livekit.relay` demands", ms(relayed)))
        }
        (Relay::Only, _, Err(error)) => Check::failed(
            NAME,
            format!("not over TURN: {error}"),
            format!("{TURN}, or set `sts.livekit.relay`"),
        ),
        (Relay::Off, Err(error), _) => Check::failed(NAME, error, PORTS),
        (Relay::Auto, Err(error), Err(relay)) => Check::failed(
            NAME,
            format!("straight: {error}; over TURN: {relay}"),
            format!("{PORTS}; or {TURN}"),
        ),
    }
}

async fn look_at_the_clock(config: &Config, clocks: &mut Clocks) {
    let Some(url) = config.sts.livekit.url.as_ref().and_then(|url| url.parse::<url::Url>().ok()) else {
        return;
    };
    let address = url.as_str().replacen("ws", "http", usize::from(url.scheme().starts_with("ws")));
    let Ok(client) = outbound::client() else { return };
    if let Ok(response) = client.get(address).timeout(ASK_TIMEOUT).send().await {
        clocks.note("the LiveKit server", response.headers());
    }
}

/// Joins a room of its own as an agent does, until media flows that way.
async fn way(config: &Config, relay: Relay) -> Way {
    let config = room::Config { relay, ..config.sts.livekit.clone() };
    let livekit = LiveKit::open(&config).ok().flatten().ok_or("`sts.livekit` cannot be used")?;
    let room = format!("doctor-{:016x}", rand::random::<u64>());
    let made = livekit.create_room(&room, &LIMITS).await;
    made.map_err(|error| format!("no room can be made: {:#}", anyhow::Error::new(error)))?;
    let visit = Visit { is_ready: watch::Sender::new(false), over: CancellationToken::new() };
    let mut is_ready = visit.is_ready.subscribe();
    let begun = Instant::now();
    let joined = tokio::select! {
        _ = is_ready.wait_for(|is_ready| *is_ready) => Ok(begun.elapsed()),
        end = livekit.serve("doctor", &room, &visit) => Err(match end {
            RoomEnd::Failed(error) => error,
            RoomEnd::Closed | RoomEnd::SessionOver => "the server closed the room".into(),
        }),
        () = tokio::time::sleep(READY_WAIT) => Err("no way was found in time".into()),
    };
    // Once; the room would close by itself.
    let _ = tokio::time::timeout(DELETE_WAIT, livekit.delete_room("doctor", &room)).await;
    joined
}

/// A stay in a room in which the doctor is the agent, and serves no one.
struct Visit {
    is_ready: watch::Sender<bool>,
    over: CancellationToken,
}

impl Reception for Visit {
    fn seat<'a>(&'a self, _: Kind, _: &'a str) -> BoxFuture<'a, Result<Seat, NoSeat>> {
        Box::pin(async { Err(NoSeat::Refused) })
    }

    fn bind<'a>(&'a self, _: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(async {})
    }

    fn connecting(&self) {}

    fn ready(&self) {
        self.is_ready.send_replace(true);
    }

    fn is_over(&self) -> bool {
        self.over.is_cancelled()
    }

    fn over(&self) -> WaitForCancellationFuture<'_> {
        self.over.cancelled()
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::Status;
    use super::*;

    #[test]
    fn media_needs_one_of_the_ways_that_are_wanted() {
        let way = |works: bool| if works { Ok(Duration::from_millis(20)) } else { Err("no".to_owned()) };
        for (wanted, direct, relayed, status) in [
            (Relay::Auto, true, true, Status::Ok),
            (Relay::Auto, true, false, Status::Ok),
            (Relay::Auto, false, true, Status::Warning),
            (Relay::Auto, false, false, Status::Failed),
            (Relay::Off, false, true, Status::Failed),
            (Relay::Only, true, false, Status::Failed),
            (Relay::Only, false, true, Status::Ok),
        ] {
            assert_eq!(media(wanted, way(direct), way(relayed)).status, status, "{wanted:?}");
        }
    }
}
