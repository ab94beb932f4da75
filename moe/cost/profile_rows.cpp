#include "moe/cost/profile_rows.h"

#include <fmt/format.h>

#include "moe/cost/modules.h"

namespace moe {
namespace {

Op op_from(const TableReader& row, OpTable table) { return *find_op(row.choice("op", names_of(table))); }

// Reads the beta of the unit in which the row is priced, and refuses the other one.
double beta_from(const TableReader& row, bool by_byte, const Limits& range, const std::string& what) {
  const std::string_view unit = by_byte ? "beta_s_per_byte" : "beta_s_per_flop";
  const std::string_view other = by_byte ? "beta_s_per_flop" : "beta_s_per_byte";
  if (row.has(other)) row.fail(row.value(other), other, fmt::format("{} for {}", unit, what));
  return row.real(unit, range);
}

}  // namespace

CommRow comm_row_from(const TableReader& table, const std::function<double(Network)>& most_ranks) {
  CommRow out;
  out.op = op_from(table, OpTable::comm);
  out.network = table.choice("network", {"inter", "intra"}) == "inter" ? Network::inter : Network::intra;
  out.ranks = static_cast<int>(
      table.integer("ranks", {.least = 2, .most = out.op == Op::sendrecv ? 2 : most_ranks(out.network)}));
  out.alpha_s = table.real("alpha_s", kSeconds);
  out.beta_s_per_byte = table.real("beta_s_per_byte", kSecondsPerUnit);
  return out;
}

ComputeRow compute_row_from(const TableReader& table) {
  ComputeRow out;
  out.op = op_from(table, OpTable::compute);
  const std::string what = fmt::format("op = '{}'", name_of(out.op));
  if (out.op == Op::expert) out.ffn = ffn_from(table.text("ffn"), table.where("ffn"));
  if (out.op != Op::expert && table.has("ffn")) table.fail(table.value("ffn"), "ffn", "none beside " + what);
  if (table.has("dtype")) out.dtype = dtype_from(table.text("dtype"), table.where("dtype"));
  out.alpha_s = table.real("alpha_s", kSeconds);
  const bool copy = out.op == Op::copy;
  (copy ? out.beta_s_per_byte : out.beta_s_per_flop) = beta_from(table, copy, kSecondsPerUnit, what);
  return out;
}

ModuleRow module_row_from(const TableReader& table) {
  ModuleRow out;
  out.name = table.name("name");
  out.phase = table.choice("phase", {"forward", "backward"}) == "forward" ? Phase::forward : Phase::backward;
  out.seq = table.optional_integer("seq", {.least = 1});
  out.alpha_s = table.real("alpha_s", kSeconds);
  const bool by_byte = is_priced_by_byte(out.name);
  (by_byte ? out.beta_s_per_byte : out.beta_s_per_flop) =
      beta_from(table, by_byte, {.least = 0, .most = kSecondsPerUnit.most},
                fmt::format("name = '{}'", out.name));  // 0: a time measured once
  return out;
}

}  // namespace moe
