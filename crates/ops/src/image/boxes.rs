//! Boxes in images, and how much they overlap.

/// Two opposite corners of a box, in any order: y, x, y, x.
pub(super) type Corners = [f32; 4];

/// The share of the area of two boxes that both cover.
pub(super) fn overlap(a: Corners, b: Corners) -> f32 {
    let (a, b) = (ordered(a), ordered(b));
    let area = |c: Corners| (c[2] - c[0]) * (c[3] - c[1]);
    let (a_area, b_area) = (area(a), area(b));
    if a_area <= 0. || b_area <= 0. {
        return 0.;
    }
    let side = |i: usize| (a[i + 2].min(b[i + 2]) - a[i].max(b[i])).max(0.);
    let both = side(0) * side(1);
    both / (a_area + b_area - both)
}

/// The corner nearer to the origin first.
fn ordered([y1, x1, y2, x2]: Corners) -> Corners {
    [y1.min(y2), x1.min(x2), y1.max(y2), x1.max(x2)]
}
