#include "moe/cost/contention.h"

namespace moe {
namespace {

using enum Resource;
constexpr std::array<ContentionPair, kSlowed*(kSlowed - 1)> kPairs{{{intra, inter, &Contention::intra_by_inter},
                                                                    {inter, intra, &Contention::inter_by_intra},
                                                                    {compute, inter, &Contention::compute_by_inter},
                                                                    {compute, intra, &Contention::compute_by_intra},
                                                                    {inter, compute, &Contention::inter_by_compute},
                                                                    {intra, compute, &Contention::intra_by_compute},
                                                                    {copy, inter, &Contention::copy_by_inter},
                                                                    {copy, intra, &Contention::copy_by_intra},
                                                                    {copy, compute, &Contention::copy_by_compute},
                                                                    {inter, copy, &Contention::inter_by_copy},
                                                                    {intra, copy, &Contention::intra_by_copy},
                                                                    {compute, copy, &Contention::compute_by_copy}}};

}  // namespace

std::string_view name_of(Resource resource) {
  static constexpr std::array<std::string_view, kResources> kNames{"compute", "inter", "intra", "copy", "none"};
  return kNames[static_cast<size_t>(resource)];
}

std::string ContentionPair::key() const { return std::string(name_of(slowed)) + "_by_" + std::string(name_of(by)); }

std::span<const ContentionPair> contention_pairs() { return kPairs; }

}  // namespace moe
