//! How far rounding can drive apart the losses of two runs that add in different orders.
//!
//! Let `u = 2^-53`, `N` training images with features `x` of norm at most `X`, `m = 65` features,
//! weights of Frobenius norm at most `W`, step size `η`, and `f` the mean loss. To first order in
//! `u`:
//!
//! 1. **A step does not drive runs apart.** `f` is convex, and its Hessian is at most
//!    `L = λmax(XᵀX / N) / 2`, because `diag(p) - ppᵀ ≤ 1/2` for probabilities `p`. So for `η ≤ 2 / L`
//!    the exact step `F(w) = w - η ∇f(w)` is nonexpansive: `‖F(v) - F(w)‖ ≤ ‖v - w‖`. As
//!    `λmax(A) ≤ ‖A‖∞`, it suffices that `η ≤ 4 / ‖XᵀX / N‖∞`.
//! 2. **Rounding of a gradient.** The scores of an image are off by at most `m u W X`, and their
//!    distances to the highest by `(m + 5) u W X`. The softmax halves that (its Jacobian's norm is at
//!    most 1/2) and adds `17 u` of its own: 4 for exp above and below, 9 for the sum of ten, 1 each
//!    for the division and the subtraction of 1, and `√2` for the product with `x`, which brings the
//!    factor `X`. An image's gradient has norm at most `√2 X`, so that the sum over the images, in any
//!    order, and the division by `N` are off by at most `√2 N u X` of the mean.
//!    Together `ε = u X ((m + 5) W X / 2 + 17 + √2 N)`.
//! 3. **Rounding of a step**: `δ = η ε + u (W + √2 η X)`.
//! 4. By 1, errors of steps add up and never grow: after `T` steps two runs' weights are at most
//!    `2 T δ` apart, whatever the orders of their sums.
//! 5. `‖∇f‖ ≤ √2 X`, and one evaluation of the loss is off by at most
//!    `u (N + m + 15) (2 W X + 3)`, where `2 W X + 3` bounds the loss of an image. So two runs'
//!    losses differ by at most `√2 X · 2 T δ + 2 u (N + m + 15) (2 W X + 3)`.
//!
//! The terms of second order are smaller by a factor of `N u`; the result is doubled to cover them.

use crate::{FEATURES, Image, STEP};

/// Euclidean norm.
pub(crate) fn norm(vector: &[f64]) -> f64 {
    vector.iter().map(|x| x * x).sum::<f64>().sqrt()
}

/// Largest difference between the losses of two runs, for all the training images of both and
/// weights of norm at most `weight_norm`.
///
/// # Panics
///
/// If the step size is too large for the proof.
pub(crate) fn on_losses(train: &[Image], steps: usize, weight_norm: f64) -> f64 {
    let longest_step = 4.0 / gram_row_sum(train);
    assert!(STEP <= longest_step, "step size {STEP} expands: at most {longest_step:.3} does not");

    let u = f64::EPSILON / 2.0;
    let (n, m, t) = (train.len() as f64, FEATURES as f64, steps as f64);
    let x = train.iter().map(|image| norm(&image.features)).fold(0.0, f64::max);
    let wx = weight_norm * x;
    let root2 = f64::sqrt(2.0);
    let gradient = u * x * ((m + 5.0) * wx / 2.0 + 17.0 + root2 * n);
    let step = STEP * gradient + u * (weight_norm + root2 * STEP * x);
    let evaluation = u * (n + m + 15.0) * (2.0 * wx + 3.0);
    2.0 * (root2 * x * 2.0 * t * step + 2.0 * evaluation)
}

/// `‖XᵀX / N‖∞`, the largest sum of absolute values in a row.
fn gram_row_sum(train: &[Image]) -> f64 {
    let entry = |a: usize, b: usize| {
        let products = train.iter().map(|image| image.features[a] * image.features[b]);
        products.sum::<f64>() / train.len() as f64
    };
    let row_sum = |a| (0..FEATURES).map(|b| entry(a, b).abs()).sum();
    (0..FEATURES).map(row_sum).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use crate::{WEIGHTS, load, train};
    use han::Context;

    /// The bound lets pass another order of the sums, and nothing else.
    #[test]
    #[allow(clippy::unwrap_used)]
    fn bound_tells_rounding_from_errors() {
        let context = Context::init().unwrap();
        let mut images = load(context.world()).unwrap();
        let steps = 20;
        let forward = train(context.world(), &images, steps, &mut [0.0; WEIGHTS + 1]).unwrap();
        let bound = super::on_losses(&images.train, steps, forward.largest_norm);
        let last = steps - 1;

        images.train.reverse();
        let backward = train(context.world(), &images, steps, &mut [0.0; WEIGHTS + 1]).unwrap();
        assert_ne!(backward.weights, forward.weights, "the order should matter");
        assert!((backward.losses[last] - forward.losses[last]).abs() <= bound);

        images.train.pop();
        let without_one = train(context.world(), &images, steps, &mut [0.0; WEIGHTS + 1]).unwrap();
        assert!((without_one.losses[last] - forward.losses[last]).abs() > bound);
        context.finalize().unwrap();
    }
}
