//! Kernels against libtorch on the processor: emulated everywhere, and on a GPU if there is one. `choose` and the
//! log-mel kernels have their twins, and their tests, in `models/whisper`.

pub mod emulated;

use tch::{Kind, Tensor};

use self::emulated::devices;
use super::*;

/// Rows of each test, of which the third is empty.
const ROWS: i64 = 5;
const HEADS: i64 = 3;
const WIDTH: i64 = HEADS * HEAD as i64;
const SLOTS: i64 = 4;
const TEXT: i64 = 40;

fn address(tensor: &Tensor) -> Address {
    // SAFETY: contiguous memory of the tensor, which each test keeps to its end.
    unsafe { Address::new(tensor.data_ptr()) }
}

fn random(shape: &[i64], kind: Kind) -> Tensor {
    Tensor::randn(shape, (Kind::Float, tch::Device::Cpu)).to_kind(kind)
}

fn ints(values: &[i32], device: tch::Device) -> Tensor {
    Tensor::from_slice(values).to_device(device)
}

/// The rows as a tensor of bytes.
fn rows(rows: &[Row], device: tch::Device) -> Tensor {
    let mut bytes = Vec::new();
    rows.iter().for_each(|row| row.write(&mut bytes));
    Tensor::from_slice(&bytes).to_device(device)
}

fn finished(device: &mut dyn Device) {
    device.before_libtorch().expect("the device works");
    if tch::Cuda::is_available() {
        tch::Cuda::synchronize(0);
    }
}

fn assert_close(found: &Tensor, expected: &Tensor, tolerance: f64, what: &str) {
    let found = found.to_device(tch::Device::Cpu).to_kind(Kind::Float);
    let expected = expected.to_device(tch::Device::Cpu).to_kind(Kind::Float);
    let worst = f64::try_from((found - expected).abs().max()).expect("a number");
    assert!(worst <= tolerance, "{what}: {worst}");
}

/// Opens NVRTC: that of libtorch's CUDA part if there is a GPU, otherwise the clone's.
fn open_compiler() {
    if libraries::open(None).is_err() {
        let nvrtc = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(".verbatim/nvrtc-13.0.88/lib");
        libraries::open_companions(&[nvrtc]);
    }
}

#[test]
fn kernels_compile_for_every_architecture() {
    open_compiler();
    for architecture in ["sm_80", "sm_89", "sm_90"] {
        let cubin = compiler::compile(kernels::SOURCE, architecture)
            .unwrap_or_else(|error| panic!("{architecture}: {error} (./setup nvrtc installs NVRTC)"));
        for kernel in Kernel::ALL {
            let name = kernel.name().as_bytes();
            assert!(cubin.windows(name.len()).any(|part| part == name), "{architecture} lacks {kernel:?}");
        }
    }
    let refused = compiler::compile("__global__ void broken( {", "sm_90").expect_err("no CUDA");
    assert!(refused.to_string().contains("verbatim.cu(1)"), "{refused}");
}

#[test]
fn compiled_kernels_are_kept_for_the_next_start() {
    open_compiler();
    let folder = tempfile::tempdir().expect("a temporary folder");
    // Transfers on two devices at once.
    let of_device = || compiler::kernels((9, 0), folder.path()).expect("it compiles");
    let (first, second) = std::thread::scope(|scope| {
        let second = scope.spawn(of_device);
        (of_device(), second.join().expect("it compiles"))
    });
    assert_eq!(first, second);
    let kept: Vec<_> = std::fs::read_dir(folder.path()).expect("there").flatten().collect();
    assert_eq!(kept.len(), 1, "{kept:?}");
    std::fs::write(kept[0].path(), b"\x7fELF changed").expect("writable");
    assert_eq!(of_device(), b"\x7fELF changed");
    std::fs::write(kept[0].path(), b"").expect("writable");
    assert_eq!(of_device(), first);
    assert_ne!(compiler::kernels((8, 0), folder.path()).expect("it compiles"), first);
}

#[test]
fn embeddings_are_those_of_token_and_position() {
    for (torch_device, mut device) in devices() {
        let tokens = random(&[50, WIDTH], Kind::BFloat16).to_device(torch_device);
        let position_embeddings = random(&[TEXT, WIDTH], Kind::Float).to_device(torch_device);
        let given = |slot, token, position| Row {
            slot: Some(slot),
            given: Some((token, position)),
            first: 0,
            wanted: Wanted::default(),
        };
        // A given token; one from the state; none; a finished slot; an invalid token.
        let of = [given(2, 7, 3), Row::step(1, 1), Row::NONE, Row::step(0, 3), given(2, 50, 4)];
        let row_bytes = rows(&of, torch_device);
        const NUMBERS: usize = State::BYTES / 4;
        let mut states = vec![0i32; SLOTS as usize * NUMBERS];
        (states[NUMBERS], states[NUMBERS + 1], states[6]) = (49, 39, 1);
        let states = ints(&states, torch_device);
        let positions = ints(&[9; ROWS as usize], torch_device);
        let x = random(&[ROWS, WIDTH], Kind::Float).to_device(torch_device);
        let sizes = [WIDTH, 50, TEXT].map(|size| Argument::from(size as usize));
        let mut arguments: Vec<Argument> = [&row_bytes, &states, &tokens, &position_embeddings]
            .map(|tensor| address(tensor).into())
            .to_vec();
        arguments.extend(sizes);
        arguments.extend([Argument::from(address(&positions)), address(&x).into()]);
        device.after_libtorch().expect("the device works");
        device.launch(Kernel::Embed, [ROWS as usize, 1, 1], &arguments).expect("launched");
        finished(device.as_mut());
        let found: Vec<i32> = positions.to_device(tch::Device::Cpu).try_into().expect("numbers");
        assert_eq!(found, [3, 39, -1, -1, -1]);
        for (row, token, position) in [(0, 7, 3), (1, 49, 39)] {
            let expected = tokens.get(token).to_kind(Kind::Float) + position_embeddings.get(position);
            assert_close(&x.get(row), &expected, 0.0, "embedding");
        }
        assert_close(
            &x.narrow(0, 2, 3),
            &Tensor::zeros([3, WIDTH], (Kind::Float, torch_device)),
            0.0,
            "nothing",
        );
    }
}

#[test]
fn the_norm_takes_up_what_a_block_made() {
    for (torch_device, mut device) in devices() {
        // A width that is not a multiple of the block, and one that is.
        for width in [WIDTH, 1280] {
            let positions = ints(&[0, 5, -1, 1, 2], torch_device);
            let [before, y] =
                [0, 1].map(|_| random(&[ROWS, width], Kind::Float).to_device(torch_device) * 3.0);
            let [bias, gamma, beta] =
                [0, 1, 2].map(|_| random(&[width], Kind::Float).to_device(torch_device));
            let x = before.copy();
            let normal = Tensor::zeros([ROWS, width], (Kind::BFloat16, torch_device));
            device.after_libtorch().expect("the device works");
            let launch = |y: Address, bias: Address| {
                let arguments = [
                    address(&positions).into(),
                    address(&x).into(),
                    y.into(),
                    bias.into(),
                    address(&gamma).into(),
                    address(&beta).into(),
                    Argument::from(width as usize),
                    address(&normal).into(),
                ];
                device.launch(Kernel::AddNorm, [ROWS as usize, 1, 1], &arguments).expect("launched");
            };
            launch(address(&y), address(&bias));
            launch(Address::NULL, Address::NULL);
            finished(device.as_mut());
            let expected = &before + &y + &bias;
            let norm = expected.layer_norm([width], Some(&gamma), Some(&beta), 1e-5, false);
            for row in [0, 1, 3, 4] {
                assert_close(&x.get(row), &expected.get(row), 1e-5, "residual");
                // bf16 has 8 bits, and no number of the norm is above 16.
                assert_close(&normal.get(row), &norm.get(row), 0.06, "norm");
                let error = (normal.get(row).to_kind(Kind::Float) - norm.get(row)).abs()
                    / (norm.get(row).abs() + 0.01);
                assert!(f64::try_from(error.max()).expect("a number") < 0.006);
            }
            assert_close(&x.get(2), &before.get(2), 0.0, "a row with nothing to do");
        }
    }
}

#[test]
fn gelu_is_exact_to_bf16() {
    for (torch_device, mut device) in devices() {
        let width = 1300;
        let positions = ints(&[0, 5, -1, 1, 2], torch_device);
        let x = random(&[ROWS, width], Kind::Float).to_device(torch_device) * 3.0;
        let bias = random(&[width], Kind::Float).to_device(torch_device);
        let y = Tensor::zeros([ROWS, width], (Kind::BFloat16, torch_device));
        let arguments = [
            address(&positions).into(),
            address(&x).into(),
            address(&bias).into(),
            Argument::from(width as usize),
            address(&y).into(),
        ];
        device.after_libtorch().expect("the device works");
        device.launch(Kernel::BiasGelu, [ROWS as usize, 2, 1], &arguments).expect("launched");
        finished(device.as_mut());
        let expected = (&x + &bias).gelu("none").to_kind(Kind::BFloat16);
        for row in [0, 1, 3, 4] {
            assert_close(&y.get(row), &expected.get(row), 0.04, "gelu");
        }
        assert_close(
            &y.get(2),
            &Tensor::zeros([width], (Kind::Float, torch_device)),
            0.0,
            "a row with nothing to do",
        );
    }
}

/// softmax(query · keysᵀ / 8) · values, of one row and head; keys and values (length, 64).
fn attention(query: &Tensor, keys: &Tensor, values: &Tensor) -> Tensor {
    let weights = keys.to_kind(Kind::Float).mv(&(query * 0.125)).softmax(0, Kind::Float);
    values.to_kind(Kind::Float).tr().mv(&weights)
}

#[test]
fn audio_is_attended_to_in_parts_of_each_slots_own_length() {
    let positions_max = 600i64;
    let splits = 3;
    let on_each =
        devices().into_iter().map(|on| (on, false)).chain(devices().into_iter().map(|on| (on, true)));
    for ((torch_device, mut device), fp8) in on_each {
        let lengths = [600, 1, 257, 0];
        let of_row = [2usize, 0, 1, 1, 3];
        let at = [0, 300, -1, 1, 2];
        // The fourth chooses no token.
        let mut of = of_row.map(|slot| Row::step(slot, 0));
        of[3].wanted = Wanted { no_speech: true, choice: false };
        let of_wanted = of.map(|row| row.wanted.choice);
        let row_bytes = rows(&of, torch_device);
        let positions = ints(&at, torch_device);
        let query = random(&[ROWS, WIDTH], Kind::Float).to_device(torch_device) * 2.0;
        let bias = random(&[WIDTH], Kind::Float).to_device(torch_device);
        let kind = if fp8 { Kind::Float8e4m3fn } else { Kind::BFloat16 };
        let cache = || {
            random(&[SLOTS, HEADS, positions_max, HEAD as i64], Kind::Float)
                .to_kind(kind)
                .to_device(torch_device)
        };
        let (keys, values) = (cache(), cache());
        let scales = || random(&[SLOTS, HEADS], Kind::Float).to_device(torch_device).exp();
        let (key_scales, value_scales) = (scales(), scales());
        let lengths_there = ints(&lengths, torch_device);
        let parts = Tensor::zeros([ROWS, HEADS, splits, 66], (Kind::Float, torch_device));
        let attended = Tensor::zeros([ROWS, WIDTH], (Kind::BFloat16, torch_device));
        // The first head is no alignment head, and the others are in another order.
        let kept_heads = [-1, 1, 0];
        let kept_indices = ints(&kept_heads, torch_device);
        let kept = Tensor::zeros([SLOTS, 2, KEPT_ROWS as i64, positions_max], (Kind::Float, torch_device));
        let mut arguments = vec![
            address(&row_bytes).into(),
            address(&positions).into(),
            address(&query).into(),
            address(&bias).into(),
            Argument::from(HEADS as usize),
            Argument::from(positions_max as usize),
            address(&lengths_there).into(),
            address(&keys).into(),
            address(&values).into(),
            address(&kept_indices).into(),
            Argument::from(2),
            address(&kept).into(),
        ];
        if fp8 {
            arguments.extend([&key_scales, &value_scales].map(|scales| Argument::from(address(scales))));
        }
        arguments.push(address(&parts).into());
        let kernel = if fp8 { Kernel::CrossAttentionFp8 } else { Kernel::CrossAttention };
        device.after_libtorch().expect("the device works");
        let grid = [ROWS as usize, HEADS as usize, splits as usize];
        device.launch(kernel, grid, &arguments).expect("launched");
        let join = [
            address(&positions).into(),
            address(&parts).into(),
            Argument::from(splits as usize),
            address(&attended).into(),
        ];
        device.launch(Kernel::CrossJoin, [grid[0], grid[1], 1], &join).expect("launched");
        finished(device.as_mut());
        let expected_kept = kept.zeros_like();
        for (row, &slot) in of_row.iter().enumerate() {
            let length = i64::from(lengths[slot]);
            for head in 0..HEADS {
                let found = attended.get(row as i64).narrow(0, head * HEAD as i64, HEAD as i64);
                let query = (query.get(row as i64) + &bias).narrow(0, head * HEAD as i64, HEAD as i64);
                let of = |cache: &Tensor, scales: &Tensor| {
                    let numbers = cache.get(slot as i64).get(head).narrow(0, 0, length).to_kind(Kind::Float);
                    if fp8 { numbers * scales.get(slot as i64).get(head) } else { numbers }
                };
                let keys = of(&keys, &key_scales);
                if at[row] >= 0 && of_wanted[row] && kept_heads[head as usize] >= 0 {
                    let row_of = expected_kept.get(slot as i64).get(i64::from(kept_heads[head as usize]));
                    let mut row_of = row_of.get(i64::from(at[row]) % KEPT_ROWS as i64).narrow(0, 0, length);
                    row_of.copy_(&keys.mv(&(&query * 0.125)));
                }
                let expected = if row == 2 || length == 0 {
                    Tensor::zeros([HEAD as i64], (Kind::Float, torch_device))
                } else {
                    attention(&query, &keys, &of(&values, &value_scales))
                };
                // The result is rounded to bf16.
                let largest = f64::try_from(expected.abs().max()).expect("a number");
                assert_close(&found, &expected, 0.005 * largest.max(1.0), "cross-attention");
            }
        }
        assert_close(&kept, &expected_kept, 1e-3, "scores of alignment heads, and nothing else");
    }
}

#[test]
fn every_number_in_fp8_is_read_as_it_is() {
    for (torch_device, mut device) in devices() {
        // A key of all codes but NaN, four heads of 64; the value of each is itself, with one position.
        let codes: Vec<u8> = (0..=u8::MAX).map(|code| if code & 0x7F == 0x7F { 0 } else { code }).collect();
        let values = Tensor::from_slice(&codes).to_device(torch_device);
        let row_bytes = rows(&[Row::step(0, 0)], torch_device);
        let (positions, lengths) = (ints(&[0], torch_device), ints(&[1], torch_device));
        let query = Tensor::zeros([1, 256], (Kind::Float, torch_device));
        let scales = Tensor::ones([1, 4], (Kind::Float, torch_device));
        let parts = Tensor::zeros([1, 4, 1, 66], (Kind::Float, torch_device));
        let arguments = [
            address(&row_bytes).into(),
            address(&positions).into(),
            address(&query).into(),
            Address::NULL.into(),
            Argument::from(4),
            Argument::from(1),
            address(&lengths).into(),
            address(&values).into(),
            address(&values).into(),
            Address::NULL.into(),
            Argument::from(0),
            Address::NULL.into(),
            address(&scales).into(),
            address(&scales).into(),
            address(&parts).into(),
        ];
        device.after_libtorch().expect("the device works");
        device.launch(Kernel::CrossAttentionFp8, [1, 4, 1], &arguments).expect("launched");
        finished(device.as_mut());
        let expected = Tensor::from_slice(&codes).view_dtype(Kind::Float8e4m3fn).to_kind(Kind::Float);
        let found = parts.get(0).narrow(2, 0, 64).contiguous().view([256]);
        assert_close(&found, &expected, 0.0, "a number");
    }
}

#[test]
fn text_is_appended_and_attended_to() {
    for (torch_device, mut device) in devices() {
        // A run of three tokens of slot 2, a single one of slot 1, and nothing.
        let run = |first| Row { first, ..Row::step(2, 0) };
        let of = [run(0), run(0), run(0), Row::step(1, 3), Row::NONE];
        let at = [10, 11, 12, 0, -1];
        let row_bytes = rows(&of, torch_device);
        let positions = ints(&at, torch_device);
        let fused = random(&[ROWS, 3 * WIDTH], Kind::Float).to_device(torch_device);
        let bias = random(&[3 * WIDTH], Kind::Float).to_device(torch_device);
        let cache = || random(&[SLOTS, HEADS, TEXT, HEAD as i64], Kind::BFloat16).to_device(torch_device);
        let (keys, values) = (cache(), cache());
        let (keys_before, values_before) = (keys.copy(), values.copy());
        let attended = Tensor::zeros([ROWS, WIDTH], (Kind::BFloat16, torch_device));
        let arguments = [
            address(&row_bytes).into(),
            address(&positions).into(),
            address(&fused).into(),
            address(&bias).into(),
            Argument::from(HEADS as usize),
            Argument::from(TEXT as usize),
            address(&keys).into(),
            address(&values).into(),
            address(&attended).into(),
        ];
        device.after_libtorch().expect("the device works");
        device
            .launch(Kernel::TextAttention, [ROWS as usize, HEADS as usize, 1], &arguments)
            .expect("launched");
        finished(device.as_mut());
        let made = (&fused + &bias).view([ROWS, 3, HEADS, HEAD as i64]);
        for (row, &position) in at.iter().enumerate().filter(|(_, position)| **position >= 0) {
            let slot = of[row].slot.expect("of a slot") as i64;
            for head in 0..HEADS {
                let part = |index| made.get(row as i64).get(index).get(head);
                let appended = |cache: &Tensor| cache.get(slot).get(head).get(i64::from(position));
                assert_close(&appended(&keys), &part(1).to_kind(Kind::BFloat16), 0.0, "key");
                assert_close(&appended(&values), &part(2).to_kind(Kind::BFloat16), 0.0, "value");
                let seen = |cache: &Tensor| cache.get(slot).get(head).narrow(0, 0, i64::from(position) + 1);
                let expected = attention(&part(0), &seen(&keys), &seen(&values));
                let found = attended.get(row as i64).narrow(0, head * HEAD as i64, HEAD as i64);
                assert_close(&found, &expected, 0.02, "self-attention");
            }
        }
        // Nothing else was written.
        for (cache, before) in [(&keys, &keys_before), (&values, &values_before)] {
            assert_close(&cache.get(2).narrow(1, 0, 10), &before.get(2).narrow(1, 0, 10), 0.0, "the past");
            assert_close(
                &cache.get(2).narrow(1, 13, 27),
                &before.get(2).narrow(1, 13, 27),
                0.0,
                "the future",
            );
            assert_close(&cache.get(0), &before.get(0), 0.0, "another slot");
        }
    }
}

#[test]
fn products_are_those_of_bf16_numbers_in_launches_of_every_size() {
    const ROOM: usize = 128;
    for (torch_device, mut device) in devices() {
        // The last ones, of large-v3, are too slow for the emulation, whose rows never depend on one another.
        let shapes = [(64, 96), (1280, 3840), (1280, 1280), (1280, 5120), (5120, 1280), (1280, 51_866)];
        for (inputs, outputs) in shapes.into_iter().take(if torch_device.is_cuda() { 6 } else { 1 }) {
            let room = ROOM as i64;
            let weight = random(&[outputs, inputs], Kind::BFloat16).to_device(torch_device);
            let x = random(&[room, inputs], Kind::BFloat16);
            // A row that stands in two places.
            x.get(room - 1).copy_(&x.get(0));
            let x = x.to_device(torch_device);
            let product = |device: &mut dyn Device, rows: usize| {
                let out = Tensor::zeros([room, outputs], (Kind::Float, torch_device));
                device.after_libtorch().expect("the device works");
                let (inputs, outputs) = (inputs as usize, outputs as usize);
                let (weight, x) = (address(&weight), address(&x));
                let product = Product { weight, x, out: address(&out), rows, room: ROOM, inputs, outputs };
                device.multiply(product).expect("multiplied");
                finished(device);
                out
            };
            let all = product(device.as_mut(), ROOM);
            let expected = x.to_kind(Kind::Float).matmul(&weight.to_kind(Kind::Float).tr());
            // Sums of as many products as there are inputs, in another order; libtorch may multiply f32 in fewer bits.
            let tolerance = if inputs == 64 { 1e-4 } else { 0.05 };
            assert_close(&all, &expected, tolerance, "product");
            assert_close(&all.get(0), &all.get(room - 1), 0.0, "a row in another place");
            let mut rows = 1;
            while rows <= ROOM {
                let some = product(device.as_mut(), rows);
                let rows_here = rows as i64;
                let (found, expected) = (some.narrow(0, 0, rows_here), all.narrow(0, 0, rows_here));
                assert_close(&found, &expected, 0.0, &format!("{rows} rows of {inputs}x{outputs}"));
                rows *= 2;
            }
        }
        let refused = Product {
            weight: Address::NULL,
            x: Address::NULL,
            out: Address::NULL,
            rows: ROOM + 1,
            room: ROOM,
            inputs: 64,
            outputs: 64,
        };
        assert!(matches!(device.multiply(refused), Err(Error::Rows { .. })));
    }
}
