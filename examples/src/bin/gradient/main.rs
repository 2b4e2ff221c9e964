//! Data-parallel training, as Horovod does it: every rank computes the gradient over its share of
//! the images, an allreduce adds the gradients up, and so all ranks take the same step.
//!
//! The model is softmax regression on the UCI handwritten digits (8 x 8 pixels, 10 classes), the
//! method plain gradient descent on all training images. Every fifth image is kept for the test.
//!
//! `han run -n 4 -- target/release/gradient [--steps N] [--alloc private|shared] [--check]`
//!
//! `--alloc shared` keeps the gradient in memory that the other ranks can map.
//!
//! All ranks must end with the same bits, which is verified in every run. With another number of
//! ranks the sums are rounded in another order: `--check` trains once more on rank 0 alone and
//! compares the losses with the bound that `bound.rs` derives.

mod bound;

use han::{Communicator, Context, Operator};
use std::error::Error;
use std::io::{self, Write};
use std::ops::Range;
use std::process::ExitCode;
use std::time::{Duration, Instant};

const DIGITS: &str = include_str!("../../../data/digits.csv");
const PIXELS: usize = 64;
const FEATURES: usize = PIXELS + 1; // the last one is the constant 1
const CLASSES: usize = 10;
const WEIGHTS: usize = FEATURES * CLASSES;
/// Step size of the descent; `bound.rs` needs it to be at most 4 / ||X^T X / N||, and checks that.
const STEP: f64 = 2.5;

struct Image {
    features: [f64; FEATURES],
    label: usize,
}

/// This rank's images.
struct Images {
    train: Vec<Image>,
    test: Vec<Image>,
    /// Training images on all ranks together.
    train_total: f64,
}

struct Training {
    /// Weight of feature f for class c at f * CLASSES + c.
    weights: Vec<f64>,
    /// Mean loss before each step.
    losses: Vec<f64>,
    /// Largest Euclidean norm that the weights had.
    largest_norm: f64,
    total: Duration,
    communicating: Duration,
}

/// Contiguous share of `count` items; shares differ by one item at most.
fn share(count: usize, rank: usize, size: usize) -> Range<usize> {
    count * rank / size..count * (rank + 1) / size
}

/// Reads this rank's share and moves the pixels' means over all training images to zero.
fn load(comm: &Communicator) -> han::Result<Images> {
    let rows: Vec<&str> = DIGITS.lines().collect();
    let is_test = |row: usize| row % 5 == 4;
    let mine = share(rows.len(), comm.rank(), comm.size());
    let numbers = |row: usize| -> Vec<u32> {
        let row = rows[row].split(',');
        row.map(|number| number.parse().expect("digits.csv holds numbers")).collect()
    };

    // Sum of each pixel, and how many images: integers, so exact whatever the number of ranks.
    let mut sums = [0_u32; PIXELS + 1];
    for row in mine.clone().filter(|&row| !is_test(row)) {
        for (sum, pixel) in sums.iter_mut().zip(&numbers(row)[..PIXELS]) {
            *sum += pixel;
        }
        sums[PIXELS] += 1;
    }
    comm.allreduce_in_place(&mut sums, Operator::Sum)?;
    let total = f64::from(sums[PIXELS]);

    let image = |row: usize| {
        let numbers = numbers(row);
        let mut features = [1.0; FEATURES];
        for pixel in 0..PIXELS {
            let offset = f64::from(numbers[pixel]) * total - f64::from(sums[pixel]);
            features[pixel] = offset / (16.0 * total);
        }
        Image { features, label: numbers[PIXELS] as usize }
    };
    Ok(Images {
        train: mine.clone().filter(|&row| !is_test(row)).map(image).collect(),
        test: mine.filter(|&row| is_test(row)).map(image).collect(),
        train_total: total,
    })
}

/// The score of each class for an image.
fn scores(weights: &[f64], image: &Image) -> [f64; CLASSES] {
    let mut scores = [0.0; CLASSES];
    for (x, row) in image.features.iter().zip(weights.chunks_exact(CLASSES)) {
        for (score, weight) in scores.iter_mut().zip(row) {
            *score += x * weight;
        }
    }
    scores
}

/// Adds one image's gradient, and behind it its loss, to `sums`.
fn add_gradient(weights: &[f64], image: &Image, sums: &mut [f64]) {
    let scores = scores(weights, image);
    let highest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let powers = scores.map(|score| (score - highest).exp());
    let total: f64 = powers.iter().sum();
    let mut slopes = powers.map(|power| power / total);
    slopes[image.label] -= 1.0;
    for (x, row) in image.features.iter().zip(sums.chunks_exact_mut(CLASSES)) {
        for (sum, slope) in row.iter_mut().zip(&slopes) {
            *sum += x * slope;
        }
    }
    sums[WEIGHTS] += total.ln() - (scores[image.label] - highest);
}

/// Gradient descent; the ranks of `comm` share the images. `sums` is the buffer of the allreduce: the gradient,
/// and behind it the loss.
fn train(comm: &Communicator, images: &Images, steps: usize, sums: &mut [f64]) -> han::Result<Training> {
    let mut weights = vec![0.0; WEIGHTS];
    let mut losses = Vec::new();
    let mut largest_norm: f64 = 0.0;
    let mut communicating = Duration::ZERO;
    let start = Instant::now();
    for _ in 0..steps {
        sums.fill(0.0);
        for image in &images.train {
            add_gradient(&weights, image, sums);
        }
        let computed = Instant::now();
        comm.allreduce_in_place(sums, Operator::Sum)?;
        communicating += computed.elapsed();

        for (weight, sum) in weights.iter_mut().zip(&*sums) {
            *weight -= STEP * (sum / images.train_total);
        }
        losses.push(sums[WEIGHTS] / images.train_total);
        largest_norm = largest_norm.max(bound::norm(&weights));
    }
    Ok(Training { weights, losses, largest_norm, total: start.elapsed(), communicating })
}

/// How many test images are classified rightly, of how many.
fn accuracy(comm: &Communicator, images: &Images, weights: &[f64]) -> han::Result<[u64; 2]> {
    let mut tally = [0, 0];
    for image in &images.test {
        let scores = scores(weights, image);
        let right = scores.iter().all(|&score| score <= scores[image.label]);
        tally[0] += u64::from(right);
        tally[1] += 1;
    }
    comm.allreduce_in_place(&mut tally, Operator::Sum)?;
    Ok(tally)
}

/// Fails unless every loss and every weight has the same bits on all ranks.
fn verify_same_bits(comm: &Communicator, training: &Training) -> Result<(), Box<dyn Error>> {
    // FNV-1a over the bits of all numbers.
    let numbers = training.losses.iter().chain(&training.weights);
    let digest = numbers
        .fold(0xcbf2_9ce4_8422_2325_u64, |digest, number| (digest ^ number.to_bits()).wrapping_mul(0x0100_0000_01b3));
    let (mut least, mut greatest) = ([digest], [digest]);
    comm.allreduce_in_place(&mut least, Operator::Min)?;
    comm.allreduce_in_place(&mut greatest, Operator::Max)?;
    if least != greatest {
        return Err("the ranks' losses or weights differ, but should have the same bits".into());
    }
    Ok(())
}

/// Trains on rank 0 alone and fails unless all losses agree within the bound.
fn check(world: &Communicator, training: &Training) -> Result<(), Box<dyn Error>> {
    let mut verdict = [0.0; 2]; // largest difference, bound
    if let Some(alone) = world.split((world.rank() == 0).then_some(0), 0)? {
        let images = load(&alone)?;
        let serial = train(&alone, &images, training.losses.len(), &mut [0.0; WEIGHTS + 1])?;
        let pairs = serial.losses.iter().zip(&training.losses);
        verdict[0] = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        let norm = serial.largest_norm.max(training.largest_norm);
        verdict[1] = bound::on_losses(&images.train, training.losses.len(), norm);
        print(&format!("check: differs from the loss of one rank by {:.1e}, bound {:.1e}", verdict[0], verdict[1]))?;
    }
    world.bcast(&mut verdict, 0)?;
    if verdict[0] > verdict[1] {
        return Err("the loss is further from that of one rank than rounding explains".into());
    }
    Ok(())
}

/// A line on standard output; `println!` panics where that is full, or closed.
fn print(line: &str) -> Result<(), Box<dyn Error>> {
    Ok(writeln!(io::stdout(), "{line}").map_err(|error| format!("cannot write to standard output: {error}"))?)
}

fn report(comm: &Communicator, training: &Training, tally: [u64; 2]) -> Result<(), Box<dyn Error>> {
    // Mean over the ranks.
    let mut seconds = [training.total.as_secs_f64(), training.communicating.as_secs_f64()];
    comm.allreduce_in_place(&mut seconds, Operator::Sum)?;
    let [total, communicating] = seconds.map(|sum| sum / comm.size() as f64);
    if comm.rank() != 0 {
        return Ok(());
    }
    let steps = training.losses.len();
    for (step, loss) in training.losses.iter().enumerate().step_by(steps.div_ceil(8)) {
        print(&format!("step {step:4}  loss {loss:.6}"))?;
    }
    let last = training.losses[steps - 1];
    print(&format!("step {:4}  loss {last:.6} = 0x{:016x} on every rank", steps - 1, last.to_bits()))?;
    print(&format!("test accuracy {:.1} % ({} of {})", 100.0 * tally[0] as f64 / tally[1] as f64, tally[0], tally[1]))?;
    print(&format!(
        "{} ranks, {total:.3} s: computing {:.3} s, communicating {communicating:.3} s ({:.0} %), \
         allreduce {steps} x {} bytes",
        comm.size(),
        total - communicating,
        100.0 * communicating / total,
        (WEIGHTS + 1) * size_of::<f64>()
    ))
}

fn run() -> Result<(), Box<dyn Error>> {
    const USAGE: &str = "usage: gradient [--steps N] [--alloc private|shared] [--check]";
    let (mut steps, mut shared, mut checked) = (400, false, false);
    let mut arguments = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--check" => checked = true,
            "--alloc" => match arguments.next().as_deref() {
                Some("private") => shared = false,
                Some("shared") => shared = true,
                _ => return Err(USAGE.into()),
            },
            "--steps" => match arguments.next().map(|value| value.parse()) {
                Some(Ok(value)) if value > 0 => steps = value,
                _ => return Err("--steps needs a number from 1".into()),
            },
            _ => return Err(format!("{argument}? {USAGE}").into()),
        }
    }

    let context = Context::init()?;
    let world = context.world();
    let images = load(world)?;
    if world.rank() == 0 {
        print(&format!("{} training images on {} ranks", images.train_total, world.size()))?;
    }
    let training = if shared {
        train(world, &images, steps, &mut world.alloc(WEIGHTS + 1)?)?
    } else {
        train(world, &images, steps, &mut [0.0; WEIGHTS + 1])?
    };
    verify_same_bits(world, &training)?;
    let tally = accuracy(world, &images, &training.weights)?;
    report(world, &training, tally)?;
    if checked {
        check(world, &training)?;
    }
    context.finalize()?;
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "gradient: {error}");
            ExitCode::FAILURE
        }
    }
}
