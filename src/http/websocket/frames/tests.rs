use proptest::prelude::*;

use super::*;

const LIMITS: Limits = Limits { frame_bytes_max: 1000, message_bytes_max: 2000 };

/// A frame as a client sends it.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mask = [0x12, 0x34, 0x56, 0x78];
    let mut bytes = vec![first];
    match payload.len() {
        length @ 0..126 => bytes.push(0x80 | length as u8),
        length @ 126..=0xFFFF => {
            bytes.push(0x80 | 126);
            bytes.extend((length as u16).to_be_bytes());
        }
        length => {
            bytes.push(0x80 | 127);
            bytes.extend((length as u64).to_be_bytes());
        }
    }
    bytes.extend(mask);
    bytes.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    bytes
}

/// The messages in `bytes` that arrive in pieces, and the code of the fault that ends them.
fn read(bytes: &[u8], piece: usize) -> (Vec<Message>, Option<u16>) {
    let (mut assembler, mut input) = (Assembler::new(LIMITS), BytesMut::new());
    let mut messages = Vec::new();
    for piece in bytes.chunks(piece) {
        input.extend_from_slice(piece);
        loop {
            match assembler.next(&mut input) {
                Ok(Some(message)) => messages.push(message),
                Ok(None) => break,
                Err(violation) => return (messages, Some(violation.code)),
            }
        }
    }
    (messages, None)
}

#[test]
fn messages_come_whole_whatever_their_frames() {
    let bytes = [
        frame(0x81, b"hello"),
        frame(0x02, &[1, 2]),
        frame(0x89, b"ping"),
        frame(0x00, &[3]),
        frame(0x80, &[4; 300]),
        frame(0x8A, b""),
        frame(0x82, b""),
        frame(0x88, &[0x03, 0xE8, b'b', b'y', b'e']),
    ]
    .concat();
    let binary = [vec![1, 2, 3], vec![4; 300]].concat();
    let expected = [
        Message::Text("hello".into()),
        Message::Ping(Bytes::from_static(b"ping")),
        Message::Binary(binary.into()),
        Message::Pong,
        Message::Binary(Bytes::new()),
        Message::Close(Some(1000)),
    ];
    for piece in [1, 2, 3, 7, 10_000] {
        assert_eq!(read(&bytes, piece), (expected.to_vec(), None), "in pieces of {piece}");
    }
}

#[test]
fn what_breaks_the_protocol_is_refused_with_its_code() {
    let unmasked = vec![0x82, 2, 1, 2];
    let long_form = [&[0x82, 0x80 | 126, 0, 5][..], &[0; 9]].concat();
    let longer_form = [&[0x82, 0x80 | 127, 0, 0, 0, 0, 0, 0, 1, 0][..], &[0; 9]].concat();
    let negative = vec![0x82, 0x80 | 127, 0xFF, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0];
    let cases = [
        ("unmasked", unmasked, 1002),
        ("reserved bit", frame(0xC1, b"a"), 1002),
        ("opcode 3", frame(0x83, b"a"), 1002),
        ("opcode 11", frame(0x8B, b"a"), 1002),
        ("fragmented ping", frame(0x09, b"a"), 1002),
        ("large ping", frame(0x89, &[0; 126]), 1002),
        ("nothing to continue", frame(0x80, b"a"), 1002),
        ("begins twice", [frame(0x01, b"a"), frame(0x81, b"b")].concat(), 1002),
        ("5 as two bytes", long_form, 1002),
        ("256 as eight bytes", longer_form, 1002),
        ("2^64", negative, 1009),
        ("large frame", frame(0x82, &[0; 1001]), 1009),
        (
            "large message",
            [frame(0x02, &[0; 1000]), frame(0x00, &[0; 1000]), frame(0x80, b"x")].concat(),
            1009,
        ),
        ("no text", frame(0x81, b"a\xFFb"), 1007),
        ("half a character", frame(0x81, "é".as_bytes().split_at(1).0), 1007),
        ("half a close code", frame(0x88, &[3]), 1002),
        ("close code 0", frame(0x88, &[0, 0]), 1002),
        ("close code 1005", frame(0x88, &1005u16.to_be_bytes()), 1002),
        ("close code 2000", frame(0x88, &2000u16.to_be_bytes()), 1002),
        ("close code 65535", frame(0x88, &[0xFF, 0xFF]), 1002),
        ("close reason", frame(0x88, &[3, 0xE8, 0xFF]), 1007),
    ];
    for (name, bytes, code) in cases {
        for piece in [1, 4, 10_000] {
            assert_eq!(read(&bytes, piece), (vec![], Some(code)), "{name} in pieces of {piece}");
        }
    }
}

#[test]
fn text_that_cannot_become_text_is_refused_before_its_frame_is_whole() {
    let mut bytes = frame(0x81, &[b'a', 0xC0, 0xAF, b'b', b'c', b'd']);
    bytes.truncate(bytes.len() - 3);
    assert_eq!(read(&bytes, 1), (vec![], Some(1007)));
    let split = [frame(0x01, &[0xCE]), frame(0x80, &[0xBA])].concat();
    assert_eq!(read(&split, 3).0, [Message::Text("κ".into())]);
}

#[test]
fn a_large_frame_is_refused_by_its_header() {
    assert_eq!(read(&frame(0x82, &[0; 5000])[..8], 1), (vec![], Some(1009)));
}

proptest! {
    #[test]
    fn no_bytes_break_it_and_pieces_change_nothing(
        bytes in prop::collection::vec(any::<u8>(), 0..300), piece in 1_usize..50,
    ) {
        prop_assert_eq!(read(&bytes, piece), read(&bytes, usize::MAX));
    }

    #[test]
    fn messages_survive_any_cut(
        payloads in prop::collection::vec((any::<bool>(), prop::collection::vec(any::<u8>(), 0..200)), 1..8),
        piece in 1_usize..100,
    ) {
        let bytes: Vec<u8> = payloads.iter().flat_map(|(is_final, payload)| {
            if *is_final { frame(0x82, payload) } else { [frame(0x02, payload), frame(0x80, b"!")].concat() }
        }).collect();
        let expected: Vec<Message> = payloads.iter().map(|(is_final, payload)| {
            let mut payload = payload.clone();
            if !is_final { payload.push(b'!'); }
            Message::Binary(payload.into())
        }).collect();
        prop_assert_eq!(read(&bytes, piece), (expected, None));
    }
}

#[test]
fn a_message_without_end_holds_no_more_than_one_may_have() {
    let (mut assembler, mut input) = (Assembler::new(LIMITS), BytesMut::new());
    let mut refused = None;
    for number in 0..1_000_000 {
        input.extend_from_slice(&frame(if number == 0 { 0x02 } else { 0x00 }, &[7; 100]));
        match assembler.next(&mut input) {
            Ok(message) => assert_eq!(message, None),
            Err(violation) => {
                refused = Some(violation.code);
                break;
            }
        }
        let held = assembler.message.as_ref().map_or(0, |message| message.bytes.capacity());
        assert!(held <= 2000, "{held} bytes after {number} frames");
    }
    assert_eq!(refused, Some(1009));
}
