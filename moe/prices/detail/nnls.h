#pragma once
// Least squares without negative coefficients.
#include <Eigen/Core>

namespace moe {

/// Returns an x >= 0 that minimises |a x - b|, by the active-set method of Lawson and Hanson (1974), chapter 23.
/// Columns are first scaled to length 1, so that units don't matter. Throws BadInput if a and b differ in rows.
Eigen::VectorXd nnls(const Eigen::MatrixXd& a, const Eigen::VectorXd& b);

}  // namespace moe
