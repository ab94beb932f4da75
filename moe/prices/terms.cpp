#include "moe/prices/terms.h"

#include <numeric>

#include "moe/base/enum_array.h"
#include "moe/prices/modules.h"

namespace moe {
namespace {

constexpr EnumArray<Term, std::string_view, kTerms> kNames{"call",     "flop",        "score",
                                                           "row_byte", "hidden_byte", "weight_byte"};

double& at(TermValues& values, Term term) { return values[term]; }

// Adds an expert's terms, derived from its FLOPs, because these include the rows that a flow computes several times.
// `hidden`: hidden width of a rank's shard.
void add_expert(const Work& work, Phase phase, const LayerCase& c, double hidden, TaskTerms& terms) {
  const double bytes = bytes_of(c.layer.dtype), passes = phase == Phase::backward ? 2 : 1;
  const double macs = work.flops / (kFlopsPerMac * passes * gemms_of(c.layer.ffn));
  at(terms.row_terms, Term::row_byte) = macs / hidden * bytes;
  at(terms.row_terms, Term::hidden_byte) = macs / static_cast<double>(c.layer.model_dim) * bytes;
}

// Adds attention's terms. attention_dw, the half for the gradients of weights, computes no scores.
void add_attention(TaskKind kind, const LayerCase& c, TaskTerms& terms) {
  const HeadColumns columns = max_columns(c);
  if (kind != TaskKind::attention_dw)  // scores inside the window, counted once per head
    at(terms.row_terms, Term::score) = scores_flops(c) * static_cast<double>(max_heads(c).query) /
                                       (kFlopsPerMac * static_cast<double>(columns.query + columns.mixed));
  at(terms.row_terms, Term::row_byte) = mp_bytes(c);
  at(terms.fixed_terms, Term::weight_byte) =
      static_cast<double>((attention_parameters(c) + latent_parameters(c.layer)) * bytes_of(c.layer.dtype));
}

// Adds a gate's terms, with one score per token and expert.
void add_gate(const Work& work, Phase phase, const LayerCase& c, TaskTerms& terms) {
  const double passes = phase == Phase::backward ? 2 : 1;
  const double scores = work.flops / (kFlopsPerMac * passes * static_cast<double>(c.layer.model_dim));
  at(terms.row_terms, Term::score) = scores;
  at(terms.row_terms, Term::row_byte) =
      scores / static_cast<double>(c.layer.experts) * static_cast<double>(c.layer.model_dim) * bytes_of(c.layer.dtype);
}

}  // namespace

std::span<const std::string_view> term_names() { return kNames; }

double dot(const TermValues& a, const TermValues& b) { return std::inner_product(a.begin(), a.end(), b.begin(), 0.0); }

TermValues TaskTerms::share_terms(double share) const {
  TermValues all = fixed_terms;
  for (size_t t = 0; t < kTerms; ++t) all[t] += share * row_terms[t];
  return all;
}

bool has_terms(TaskKind kind) {
  const bool touches_rows = traits_of(kind).group == GroupKind::none;
  return touches_rows && (is_of_layer(kind) || is_end(kind));
}

TaskTerms terms_of(TaskKind kind, Phase phase, const LayerCase& shape, Flow flow) {
  const Work work = whole_work(kind, phase, shape, flow);
  TaskTerms terms;
  at(terms.fixed_terms, Term::call) = 1;
  at(terms.row_terms, Term::flop) = work.flops;
  if (is_expert(kind)) {
    add_expert(work, kind == TaskKind::expert ? phase : Phase::forward, shape,
               static_cast<double>(shape.layer.hidden) / shape.parallel.esp, terms);
    at(terms.fixed_terms, Term::weight_byte) = static_cast<double>(expert_gradient_bytes(shape));
  } else if (is_shared(kind) || is_ffn(kind)) {
    add_expert(work, phase, shape, static_cast<double>(shape.layer.shared_hidden) / shape.parallel.mp, terms);
    at(terms.fixed_terms, Term::weight_byte) =
        static_cast<double>(shared_parameters(shape) * bytes_of(shape.layer.dtype));
  } else if (is_attention(kind)) {
    add_attention(kind, shape, terms);
  } else if (kind == TaskKind::gate) {
    add_gate(work, phase, shape, terms);
  } else {
    at(terms.row_terms, Term::row_byte) = work.bytes;
  }
  return terms;
}

TermValues end_terms(TaskKind kind, const LayerCase& c, const Work& work) {
  TermValues terms{};
  if (kind == TaskKind::embed)
    at(terms, Term::row_byte) = mp_bytes(c);
  else
    at(terms, Term::flop) = work.flops;
  return terms;
}

TermValues memory_pass_terms(TaskKind kind, double bytes) {
  TermValues terms{};
  at(terms, Term::call) = kind == TaskKind::optimizer ? 1 : 0;
  at(terms, Term::weight_byte) = bytes;
  return terms;
}

std::string task_row_name(TaskKind kind, const LayerCase& shape) {
  if (is_half(kind) && is_attention(kind)) {
    const std::string whole = module_name(TaskKind::attention, shape);
    return std::string(name_of(kind)) + whole.substr(kAttentionModule.size());
  }
  if (is_shared(kind) || is_ffn(kind) || is_half(kind))
    return std::string(name_of(kind)) + ":" + std::string(name_of(shape.layer.ffn));
  return computes(kind) && is_of_layer(kind) ? module_name(kind, shape) : std::string(name_of(kind));
}

}  // namespace moe
