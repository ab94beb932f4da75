#pragma once
// What Lina's training figures show, and where the paper's own numbers do not fit together.
#include <array>
#include <map>
#include <string>
#include <vector>

#include "reproduce/lina_models.h"
#include "reproduce/printed_rows.h"

namespace moe::reproduce {

inline const std::array<std::string, 3> kLinaModels{"transformer-xl", "gpt-2", "bert2gpt2"};

struct LinaKey {
  std::string model;
  int experts;
  std::string schedule;
  auto operator<=>(const LinaKey&) const = default;
};
using LinaSteps = std::map<LinaKey, LinaStep>;

std::vector<std::string> lina_from_print();
std::vector<std::string> lina_unexplained(const std::vector<PrintedLina>& printed);
/// Return what is found over all models, schedules and numbers of experts.
std::string lina_slowdowns(const LinaSteps& steps, const Assumptions& assumed);
std::string lina_packings(const LinaSteps& steps, const Assumptions& assumed);
std::vector<std::string> lina_conventions();

}  // namespace moe::reproduce
