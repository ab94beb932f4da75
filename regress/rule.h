#pragma once
// The gate's rule: whether a case got slower, from launches of the two programs in pairs.
//
// A launch is one start of a program; its time of a case is the median over iterations of the maximum over ranks. A
// pair is two launches, one of each program, in a random order and next to each other: whatever drifts slowly is in
// both. What is judged is the trimmed mean of the log ratios head / base of a case's pairs.
#include <string>
#include <string_view>
#include <vector>

#include "regress/significance.h"
#include "regress/verdict.h"

namespace moe::regress {

/// Holds a case's two times in a pair, as natural logarithms of seconds.
struct Pair {
  double base = 0, head = 0;
  double log_ratio() const { return head - base; }
};

struct Rule {
  double delta = 0.03;   // the least slowdown that counts, as a share; at least what this machine can tell apart
  double level = 0.01;   // probability of any false SLOW among the suspects of a gate
  int first_pairs = 6;   // of every case
  int least_pairs = 12;  // fresh ones, of a suspect
  int most_pairs = 30;
  double confidence = 0.95;  // of the interval that is to lie within delta where a case is the SAME
  double log_delta() const;
};

/// Returns whether a case is suspect: the mean of its first pairs, trimmed or not, is beyond half of delta.
bool is_suspect(const std::vector<Pair>& first, const Rule& rule);
/// Returns how many fresh pairs each suspect gets, decided before the second stage begins: as many as the first pairs'
/// variance asks for; the most where a few launches alone make a case suspect; and so many that two disturbed pairs do
/// not hide what all others show, among so many suspects. 0 without suspects.
int fresh_pairs(const std::vector<std::vector<Pair>>& first_of_suspects, const Rule& rule);

/// Returns the slowdown, as a share, that about 19 of 20 gates of so many cases find where pairs' log ratios deviate
/// so: it makes the case suspect, its mean lie beyond delta, and its p small enough if all cases are suspect.
double smallest_visible(double deviation, size_t cases, const Rule& rule);

struct Evidence {
  std::vector<Pair> first, second;  // second: none of a case that was not suspect
};

struct Judged {
  Verdict verdict = Verdict::ambiguous;
  double ratio = 1;                  // head / base, of the mean log ratio of the stage that decided
  Interval interval;                 // of the ratio
  double p = 1;                      // of the second stage, in the direction of its mean; 1 where that is within delta
  bool bimodal = false;              // the launches lie in two groups, each arm having ten of them or more
  int slow_base = 0, slow_head = 0;  // launches in the slower group
  int pairs_needed = 0;  // of an ambiguous case, until its interval lies within delta or its mean is told from 0
  double deviation = 0;  // of the log ratios of its pairs
  double visible = 0;    // smallest_visible
};

/// Judges all cases of a gate together, in their order:
/// same      the interval of the mean lies within delta
/// slower    confirmed by fresh pairs: their mean is beyond delta and the exact sign-flip p, by Holm, within the level;
///           or the head alone has a slow mode, and Fisher's p is within the level
/// faster    the same the other way round
/// ambiguous neither
std::vector<Judged> judge(const std::vector<Evidence>& cases, const Rule& rule);

}  // namespace moe::regress
