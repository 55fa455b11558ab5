use super::*;

fn flow(tenant: u64) -> Flow {
    Flow::Tenant(TenantId(tenant))
}

/// Steps that take 2 ms, and 1 ms for each window.
fn fairness() -> Fairness {
    let mut fairness = Fairness::default();
    for round in 0..100 {
        let windows = 1 + round % 16;
        fairness.stepped(windows, Duration::from_millis(2 + windows as u64));
    }
    fairness
}

/// `counts[n]` seats for tenant n, in consecutive slots.
fn seats(counts: &[usize]) -> Vec<Seat> {
    let since = Instant::now();
    let tenants = counts.iter().enumerate().flat_map(|(tenant, count)| vec![tenant as u64; *count]);
    let seat = |(slot, tenant): (usize, u64)| Seat {
        slot: SlotId(slot),
        flow: flow(tenant),
        goes_first: false,
        // The later slots have begun first.
        since: since - Duration::from_millis(slot as u64),
    };
    tenants.enumerate().map(seat).collect()
}

fn chosen(fairness: &Fairness, seats: &[Seat]) -> Vec<usize> {
    fairness.select(seats).into_iter().map(|slot| slot.0).collect()
}

#[test]
fn one_tenants_windows_are_all_stepped() {
    assert_eq!(chosen(&fairness(), &seats(&[16])), (0..16).collect::<Vec<_>>());
}

#[test]
fn a_small_tenant_is_not_slowed_by_more_than_its_share() {
    // Alone its step takes 3 ms; with three others of the large tenant, 6.
    assert_eq!(chosen(&fairness(), &seats(&[15, 1])), [12, 13, 14, 15]);
    // Three tenants: 9 ms, so seven windows.
    assert_eq!(chosen(&fairness(), &seats(&[14, 1, 1])), [9, 10, 11, 12, 13, 14, 15]);
}

#[test]
fn many_small_tenants_are_one_batch() {
    let everyone = chosen(&fairness(), &seats(&[1; 16]));
    assert_eq!(everyone.len(), 16);
}

#[test]
fn steps_that_cost_the_same_leave_no_window_out() {
    let mut fairness = Fairness::default();
    for round in 0..100 {
        fairness.stepped(1 + round % 16, Duration::from_millis(5));
    }
    assert_eq!(chosen(&fairness, &seats(&[15, 1])).len(), 16);
    assert_eq!(chosen(&Fairness::default(), &seats(&[15, 1])).len(), 16, "nothing is known");
}

#[test]
fn windows_that_go_first_are_never_left_out() {
    let mut seats = seats(&[15, 1]);
    seats.iter_mut().take(8).for_each(|seat| seat.goes_first = true);
    assert!(chosen(&fairness(), &seats).starts_with(&[0, 1, 2, 3, 4, 5, 6, 7]));
    assert!(chosen(&fairness(), &seats).ends_with(&[15]));
}

const ENCODE: Duration = Duration::from_millis(80);

fn round(fairness: &mut Fairness, waiting: &[Flow], in_slots: &[Flow]) {
    fairness.begin_round(waiting.iter().copied(), in_slots.iter().copied(), Instant::now());
}

fn encode(fairness: &mut Fairness, flow: Flow, took: Duration) {
    fairness.begins(flow);
    fairness.encoded(&[flow], EncodeTime { whole: took, alone: took });
}

#[test]
fn encoding_beside_steps_costs_its_flow_and_holds_up_no_other() {
    let mut fairness = fairness();
    let (busy, other) = (flow(1), flow(2));
    let took = EncodeTime { whole: ENCODE, alone: Duration::from_millis(1) };
    for flow in [busy, other] {
        round(&mut fairness, &[busy, other], &[]);
        fairness.begins(flow);
        fairness.encoded(&[flow], took);
    }
    round(&mut fairness, &[busy], &[busy, other]);
    assert_eq!(fairness.encode_batch(8), 8);
    fairness.stepped(2, Duration::from_millis(10));
    assert!(fairness.may_begin(busy));
    round(&mut fairness, &[busy, other], &[busy, other]);
    fairness.begins(busy);
    fairness.encoded(&[busy], took);
    assert!(fairness.is_next(other) && !fairness.is_next(busy));
}

#[test]
fn the_flow_that_had_least_is_next_and_to_leave_gains_nothing() {
    let mut fairness = fairness();
    let (busy, other) = (flow(1), flow(2));
    round(&mut fairness, &[busy], &[]);
    fairness.charge(busy, 100.0);
    assert!(fairness.may_begin(busy), "it is alone");
    round(&mut fairness, &[busy, other], &[]);
    assert!(fairness.is_next(other) && fairness.is_next(busy), "both start level");
    fairness.charge(busy, 0.2);
    round(&mut fairness, &[other], &[]);
    round(&mut fairness, &[busy, other], &[]);
    assert!(!fairness.is_next(busy));
    fairness.charge(other, 0.21);
    round(&mut fairness, &[busy, other], &[]);
    assert!(fairness.is_next(busy));
}

#[test]
fn a_window_on_its_way_is_not_held_up_by_another_flows_next_one() {
    let mut fairness = fairness();
    let (busy, other) = (flow(1), flow(2));
    round(&mut fairness, &[busy], &[]);
    encode(&mut fairness, busy, ENCODE);
    assert_eq!(fairness.encode_batch(8), 8, "it is alone");
    round(&mut fairness, &[busy, other], &[busy]);
    assert_eq!(fairness.encode_batch(8), 1, "two would take too long");
    assert!(fairness.is_next(other) && !fairness.is_next(busy));
    encode(&mut fairness, other, ENCODE);
    round(&mut fairness, &[busy], &[busy, other]);
    assert!(!fairness.may_begin(busy));
    // It has been stepped for as long as it held up others, and may be held up again.
    for _ in 0..9 {
        fairness.stepped(2, Duration::from_millis(10));
    }
    assert!(fairness.may_begin(busy));
    encode(&mut fairness, busy, ENCODE);
    assert!(!fairness.may_begin(busy));
}

#[test]
fn two_flows_with_much_to_do_fill_all_slots_in_turn() {
    let mut fairness = fairness();
    let flows = [flow(1), flow(2)];
    let mut seats: Vec<Flow> = Vec::new();
    for _ in 0..16 {
        round(&mut fairness, &flows, &seats);
        let next = flows.into_iter().find(|flow| fairness.is_next(*flow)).expect("one had least");
        assert!(fairness.may_begin(next));
        encode(&mut fairness, next, ENCODE);
        seats.push(next);
    }
    let of_first = seats.iter().filter(|flow| **flow == flows[0]).count();
    assert!((7..=9).contains(&of_first), "{of_first} of 16");
}

#[test]
fn where_steps_cost_the_same_a_flow_with_much_to_do_fills_the_batch_beside_one_with_little() {
    let mut fairness = Fairness::default();
    let (busy, other) = (flow(1), flow(2));
    round(&mut fairness, &[busy, other], &[]);
    encode(&mut fairness, other, Duration::from_millis(2));
    encode(&mut fairness, busy, Duration::from_millis(2));
    let mut begun = 0;
    for _ in 0..60 {
        round(&mut fairness, &[busy], &[other, busy]);
        while fairness.may_begin(busy) && begun < 64 {
            encode(&mut fairness, busy, Duration::from_millis(2));
            begun += 1;
        }
        fairness.stepped(begun + 2, Duration::from_millis(6));
    }
    assert_eq!(begun, 64);
}

#[test]
fn a_client_that_asks_for_one_window_after_the_other_waits_for_one_encoding_at_most() {
    let mut fairness = fairness();
    let (busy, client) = (flow(1), flow(2));
    let mut others = Vec::new();
    for _ in 0..20 {
        // The busy flow begins a window just before the client asks.
        round(&mut fairness, &[busy], &[]);
        encode(&mut fairness, busy, ENCODE);
        round(&mut fairness, &[busy, client], &[busy]);
        assert!(fairness.is_next(client) && fairness.may_begin(client));
        assert!(!fairness.may_begin(busy));
        encode(&mut fairness, client, ENCODE);
        let mut encodings = 0;
        for _ in 0..8 {
            round(&mut fairness, &[busy], &[busy, client]);
            if fairness.may_begin(busy) {
                encode(&mut fairness, busy, ENCODE);
                encodings += 1;
            }
            fairness.charge(busy, 0.004);
            fairness.charge(client, 0.004);
            fairness.stepped(2, Duration::from_millis(8));
        }
        others.push(encodings);
    }
    assert_eq!(others, [0; 20]);
}

#[test]
fn nothing_is_owed_to_a_flow_with_windows_that_wait() {
    let mut fairness = fairness();
    let (first, second, third) = (flow(1), flow(2), flow(3));
    round(&mut fairness, &[first, second], &[]);
    encode(&mut fairness, first, ENCODE);
    round(&mut fairness, &[first, second], &[first]);
    encode(&mut fairness, second, ENCODE);
    round(&mut fairness, &[first, second], &[first, second]);
    assert!(fairness.may_begin(first) && fairness.may_begin(second));
    round(&mut fairness, &[first, second, third], &[first, second]);
    assert!(fairness.may_begin(third) && !fairness.may_begin(first) && !fairness.may_begin(second));
}

#[test]
fn live_windows_go_first_until_their_flow_is_a_second_ahead() {
    let mut fairness = fairness();
    let (live, other) = (flow(1), flow(2));
    round(&mut fairness, &[live, other], &[]);
    fairness.charge(live, 0.9);
    assert!(fairness.goes_first(live));
    fairness.charge(live, 0.2);
    assert!(!fairness.goes_first(live) && fairness.goes_first(other));
    round(&mut fairness, &[live], &[]);
    assert!(fairness.goes_first(live), "it is alone");
}

#[test]
fn jobs_get_little_while_a_client_waits() {
    let mut fairness = fairness();
    let client = flow(1);
    let mut jobs = 0;
    for _ in 0..100 {
        round(&mut fairness, &[client, Flow::Jobs], &[]);
        let next = if fairness.is_next(Flow::Jobs) { Flow::Jobs } else { client };
        jobs += u32::from(next == Flow::Jobs);
        encode(&mut fairness, next, ENCODE);
    }
    assert!((8..=13).contains(&jobs), "{jobs} of 100");
}

#[test]
fn quotas_give_the_smallest_all_they_ask_for() {
    assert_eq!(level(vec![15, 1], 4), 3);
    assert_eq!(level(vec![14, 1, 1], 7), 5);
    assert_eq!(level(vec![8, 8], 4), 2);
    assert_eq!(level(vec![5, 5, 5], 2), 1);
    assert_eq!(level(vec![1, 2], 9), 2);
}
