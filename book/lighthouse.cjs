/* What Lighthouse must find on pages of every kind; `make site-check` runs it for a phone and
   with DEVICE=laptop. The median of three runs counts. Performance is a matter of the machine as well, so let nothing
   else run. */

const isLaptop = process.env.DEVICE === "laptop";
const CHAPTERS = ["chapters/03_scaled_dot_product_attention", "chapters/05_positions"];
const PAGES = ["index", ...CHAPTERS, "explorables/translator", "exercises", "reference", "reference_rooms"];
const atLeast = (minScore) => ["error", { minScore, aggregationMethod: "median" }];
const atMost = (maxNumericValue) => ["error", { maxNumericValue, aggregationMethod: "median" }];

module.exports = {
  ci: {
    collect: {
      staticDistDir: "_build/html",
      url: PAGES.map((page) => `http://localhost/${page}.html`),
      numberOfRuns: 3,
      settings: { chromeFlags: "--no-sandbox", ...(isLaptop && { preset: "desktop" }) },
    },
    assert: {
      includePassedAssertions: true,
      assertMatrix: [
        {
          matchingUrlPattern: ".*",
          assertions: {
            "categories:performance": atLeast(isLaptop ? 0.98 : 0.9),
            "categories:accessibility": atLeast(1),
            "categories:best-practices": atLeast(1),
            "categories:seo": atLeast(1),
            "cumulative-layout-shift": atMost(0.05),
          },
        },
        // The translator brings its trained model.
        { matchingUrlPattern: "^(?!.*translator)", assertions: { "total-byte-weight": atMost(700_000) } },
      ],
    },
  },
};
