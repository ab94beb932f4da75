#pragma once
// Least squares without negative coefficients.
#include <Eigen/Core>

namespace moe {

/// Returns an x >= 0 that minimises |a x - b|, by the active sets of Lawson and Hanson (1974), chapter 23. Columns are
/// scaled to one length first, so that their units don't matter. Throws BadInput for a right side of another length.
Eigen::VectorXd nnls(const Eigen::MatrixXd& a, const Eigen::VectorXd& b);

}  // namespace moe
